// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <ctime>
#include <utility>

#include <sys/time.h>
#include <unistd.h>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace smp::log {
namespace {

struct Settings {
  std::string name = "smp";
  std::string prefix;
};

// Written before threads start, read-only afterwards.
Mask& mask() {
  static Mask value;
  return value;
}
Settings& settings() {
  static Settings value;
  return value;
}

std::atomic<int> threshold_value{static_cast<int>(Level::kInfo)};

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug:
      return "DEBUG";
    case Level::kInfo:
      return "INFO";
    case Level::kWarning:
      return "WARNING";
    case Level::kError:
      return "ERROR";
  }
  return "INFO";
}

std::string timestamp() {
  timeval now{};
  gettimeofday(&now, nullptr);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts);
  return fmt::format("{},{:03}", std::string_view(text.data(), length), now.tv_usec / 1000);
}

}  // namespace

std::optional<Level> parse_level(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, int>, 8> kNames = {{{"DEBUG", 10},
                                                                       {"INFO", 20},
                                                                       {"WARNING", 30},
                                                                       {"WARN", 30},
                                                                       {"ERROR", 40},
                                                                       {"CRITICAL", 50},
                                                                       {"FATAL", 50},
                                                                       {"NOTSET", 0}}};
  if (const auto number = parse_number<int>(text)) {
    return *number < 0 ? std::nullopt : std::optional(static_cast<Level>(*number));
  }
  std::string name(text);
  std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::toupper(c); });
  for (const auto& [known, value] : kNames) {
    if (name == known) return static_cast<Level>(value);
  }
  return std::nullopt;
}

void configure(std::string name, Level threshold, std::string prefix) {
  settings() = Settings{.name = std::move(name), .prefix = std::move(prefix)};
  threshold_value = static_cast<int>(threshold);
}

const std::string& name() { return settings().name; }

Level threshold() { return static_cast<Level>(threshold_value.load()); }

void mask_messages(Mask value) { mask() = std::move(value); }

const Mask& message_mask() { return mask(); }

bool enabled(Level level) { return static_cast<int>(level) >= threshold_value.load(); }

void write(Level level, std::string_view message) noexcept {
  try {
    const std::string line =
        fmt::format("{} {:<12} {:<8} {}{}\n", timestamp(), settings().name, level_name(level),
                    settings().prefix, mask() ? mask()(std::string(message)) : message);
    // A log line that cannot be written is lost: it must not end the job.
    [[maybe_unused]] const int error = write_all(STDERR_FILENO, line);
  } catch (...) {
    // Out of memory while formatting: a log line is not worth an abort.
  }
}

}  // namespace smp::log
