// SPDX-License-Identifier: Apache-2.0
// One line per event on stderr: `2026-11-21 01:55:15,423 NAME LEVEL message`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <fmt/core.h>

namespace smp::log {

/// Values are those of Python's logging module, which `SM_LOG_LEVEL` carries.
enum class Level { kDebug = 10, kInfo = 20, kWarning = 30, kError = 40 };

/// A level by its number (at least 0) or its name in Python, in any case; nothing for other texts.
std::optional<Level> parse_level(std::string_view text);

/// Sets the speaker's name (padded to 12) and the lowest level that is logged. Call once, before
/// other threads start. `prefix` is put before each message, e.g. "[rank 3, algo-2] ".
void configure(std::string name, Level threshold, std::string prefix = "");

/// What messages go through before they are written, to keep secrets out of them.
using Mask = std::function<std::string(std::string)>;
/// Sets it; call as configure().
void mask_messages(Mask mask);

bool enabled(Level level);

/// As configured: for a shared module, which has its own copy of all this.
const Mask& message_mask();
const std::string& name();
Level threshold();

/// Writes one line with one write(2), so that lines of several threads never mix. Never throws.
void write(Level level, std::string_view message) noexcept;

}  // namespace smp::log

/// SMP_LOG(info, "{} hosts", n): formats only when the level is on.
#define SMP_LOG(level, ...)                                                     \
  do {                                                                          \
    if (::smp::log::enabled(::smp::log::detail::level)) {                       \
      ::smp::log::write(::smp::log::detail::level, ::fmt::format(__VA_ARGS__)); \
    }                                                                           \
  } while (false)

namespace smp::log::detail {
inline constexpr Level debug = Level::kDebug;
inline constexpr Level info = Level::kInfo;
inline constexpr Level warning = Level::kWarning;
inline constexpr Level error = Level::kError;
}  // namespace smp::log::detail
