// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/line_kinds.h"

#include <algorithm>
#include <cctype>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "entrypoint/job/failure/traceback_collector.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

bool holds(std::string_view text, std::string_view word) {
  return text.find(word) != std::string_view::npos;
}

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; }
bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

std::string_view without_indentation(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  return begin == std::string_view::npos ? std::string_view{} : text.substr(begin);
}

/// True if `word` stands in `text` with no letter beside it.
bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !is_letter(text[at - 1])) && (end == text.size() || !is_letter(text[end]))) {
      return true;
    }
  }
  return false;
}

// Loggers name a line's level in front of what it says; as JSON and logfmt do, in small letters,
// too.
bool has_level(std::string_view text, std::span<const std::string_view> levels) {
  constexpr std::size_t kPrefix = 80;
  const std::string_view prefix = text.substr(0, kPrefix);
  if (std::ranges::any_of(levels,
                          [&](std::string_view level) { return has_word(prefix, level); })) {
    return true;
  }
  for (const std::string_view key : {"level\": \"", "level\":\"", "levelname\": \"",
                                     "severity\": \"", "severity\":\"", "level=", "lvl="}) {
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) continue;
    std::string value(text.substr(at + key.size(), 8));
    for (char& c : value) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    return std::ranges::any_of(levels,
                               [&](std::string_view level) { return value.starts_with(level); });
  }
  return false;
}

/// glog's "E1127 11:04:12.1 27 api.py:882] ", with torch's "[rank0]:[" before it or not.
bool is_glog(std::string_view text, std::string_view levels) {
  if (text.starts_with("[rank")) text.remove_prefix(std::min(text.size(), text.find(':') + 1));
  if (text.starts_with('[')) text.remove_prefix(1);
  return text.size() > 5 && levels.find(text.front()) != std::string_view::npos &&
         std::all_of(text.begin() + 1, text.begin() + 5, is_digit) && holds(text, "]");
}

constexpr std::string_view kReports[] = {
    // pip and what it starts
    "subprocess-exited-with-error", "did not run successfully", "Failed building wheel for",
    "failed-wheel-build-for-install", "metadata-generation-failed", "ERROR: Failed to build",
    "ERROR: Could not build wheels", "error: legacy-install-failure",
    "originates from a subprocess", "This is an issue with the package mentioned above",
    "Encountered error while", "See above for", "Running setup.py clean", "not a problem with pip",
    "is likely not a problem", "Error compiling objects for extension", "failed with exit code",
    "failed with exit status", "returned non-zero exit status", "ld returned 1 exit status",
    "subcommand failed", "Configuring incomplete, errors occurred", "due to previous error",
    "could not compile `", "compilation terminated",
    // launchers
    "torch.distributed.elastic", "torch/distributed/elastic", "/elastic/multiprocessing/api.py",
    "closing signal SIGTERM", "failed (exitcode:", "conda.cli.main_run", "exits with return code"};

/// "make: *** [Makefile:3: all] Error 2", ninja's "FAILED: x.o"
bool is_makes(std::string_view text) {
  return (text.starts_with("make") && holds(text, "***")) || text.starts_with("FAILED: ");
}

bool is_report(std::string_view text) {
  return holds_one_of(text, kReports) || is_makes(text) || reports_another_process(text);
}

constexpr std::string_view kErrorLevels[] = {"ERROR", "CRITICAL", "FATAL", "SEVERE"};
constexpr std::string_view kQuietLevels[] = {"INFO", "DEBUG", "TRACE", "NOTICE", "WARNING", "WARN"};

bool is_error(std::string_view text) {
  if (text.starts_with("ERROR:") || text.starts_with("error:") || text.starts_with("Error:") ||
      text.starts_with("error[") || text.starts_with("fatal:") || text.starts_with("FATAL")) {
    return true;
  }
  // Marks of PROG, of FILE:LINE:COLUMN and of shells; "SyntaxError: …" has no traceback.
  constexpr std::string_view kMarks[] = {": error: ",
                                         ": fatal error: ",
                                         " error #",
                                         "CMake Error",
                                         ": command not found",
                                         ": cannot find -l",
                                         ": undefined reference to "};
  if (holds_one_of(text, kMarks) || (text.ends_with(": not found") && holds(text, ": "))) {
    return true;
  }
  const std::string_view name = text.substr(0, text.find(':'));
  if (names_exception(text) && (name.ends_with("Error") || name.ends_with("Exception"))) {
    return true;
  }
  return is_glog(text, "EF") || has_level(text, kErrorLevels);
}

bool is_bar(std::string_view text) {
  constexpr std::string_view kBars[] = {
      "%|", "it/s]", "s/it]", "it/s,", "ETA: ", "━━━", "███", "[====", "....] - "};
  return holds_one_of(text, kBars);
}

/// "wandb: Synced 5 files": one small word, which is a tool's name. A program's own name is that of
/// a file.
bool is_tools(std::string_view text) {
  constexpr std::size_t kLongest = 20;
  const std::size_t colon = text.find(": ");
  if (colon == 0 || colon == std::string_view::npos || colon > kLongest) return false;
  const std::string_view name = text.substr(0, colon);
  constexpr std::string_view kTools[] = {"wandb",       "mlflow", "comet",   "neptune",  "clearml",
                                         "tensorboard", "aim",    "dvclive", "sagemaker"};
  return holds_one_of(name, kTools);
}

bool is_noise(std::string_view text) {
  if (std::ranges::none_of(text, is_letter) || text.starts_with("http")) return true;
  constexpr std::string_view kAtTheEnd[] = {
      "Exception ignored in", "warnings.warn(", "Warning: ", "resource_tracker", "leaked semaphore",
      // trackers, as they end: of names that stand in brackets or in capitals
      "[neptune]", "COMET INFO", "ClearML ", "View run ", "View experiment at"};
  return is_bar(text) || is_tools(text) || is_glog(text, "IWD") || has_level(text, kQuietLevels) ||
         holds_one_of(text, kAtTheEnd);
}

}  // namespace

bool holds_one_of(std::string_view text, std::span<const std::string_view> words) {
  return std::ranges::any_of(words, [text](std::string_view word) { return holds(text, word); });
}

LineKind kind_of_line(std::string_view text) {
  text = without_indentation(text);
  if (is_report(text)) return LineKind::kReport;
  if (is_tools(text) || is_bar(text)) return LineKind::kNoise;  // whatever level it names
  if (is_error(text)) return LineKind::kError;
  return is_noise(text) ? LineKind::kNoise : LineKind::kWords;
}

bool reports_another_process(std::string_view exception) {
  constexpr std::string_view kNames[] = {"torch.distributed.elastic.multiprocessing.",
                                         "subprocess.CalledProcessError"};
  if (std::ranges::any_of(kNames, [&](auto name) { return exception.starts_with(name); })) {
    return true;
  }
  constexpr std::string_view kTexts[] = {"Error compiling objects for extension",
                                         "failed with exit code", "failed with exit status",
                                         "returned non-zero exit status"};
  return names_exception(exception) && holds_one_of(exception, kTexts);
}

std::string end_in_report(std::string_view text) {
  const auto number_after = [text](std::string_view mark) {
    const std::size_t at = text.rfind(mark);
    return at == std::string_view::npos ? std::nullopt
                                        : smp::leading_number<int>(text.substr(at + mark.size()));
  };
  // subprocess: "died with <Signals.SIGKILL: 9>."
  if (const std::size_t signals = text.rfind("<Signals."); signals != std::string_view::npos) {
    const std::size_t colon = text.find(": ", signals);
    if (colon == std::string_view::npos) return {};
    const auto number = smp::leading_number<int>(text.substr(colon + 2));
    return number ? "killed by " + signal_words(*number) : std::string{};
  }
  for (const std::string_view mark :
       {"returned non-zero exit status ", "failed with exit code ", "failed with exit status "}) {
    if (const auto code = number_after(mark)) return fmt::format("exit code {}", *code);
  }
  return {};
}

std::string signal_words(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? fmt::format("signal {}", signal)
                         : fmt::format("SIG{} (signal {})", name, signal);
}

}  // namespace entrypoint
