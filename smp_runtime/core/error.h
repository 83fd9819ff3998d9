// SPDX-License-Identifier: Apache-2.0
// The errors of this project: one base, four kinds. The kind decides the category line of
// /opt/ml/output/failure and the row of the README's exit-code table.
#pragma once

#include <source_location>
#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/core.h>

namespace smp {

/// Base of every error this project throws. `what()` says what was found, where, what was expected
/// and what to do, in one line a user can act on.
class Error : public std::runtime_error {
 public:
  using runtime_error::runtime_error;

  // The first argument apart: a text alone is taken as it is. (Clang 16 cannot inherit a
  // constructor that a requires-clause constrains.)
  template <typename First, typename... Rest>
  explicit Error(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : runtime_error(
            fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

/// The job asked for something impossible.
class ConfigError : public Error {
  using Error::Error;
};

/// A peer, a device, the network or the operating system failed.
class HostError : public Error {
  using Error::Error;
};

/// The training script failed.
class UserCodeError : public Error {
  using Error::Error;
};

/// Our bug; the message asks for a report.
class InternalError : public Error {
  using Error::Error;
};

namespace detail {
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               const std::source_location& where);
}  // namespace detail

}  // namespace smp

/// Throws InternalError with file and line unless `condition` holds. The rest is a format string
/// and its arguments.
#define SMP_CHECK(condition, ...)                                         \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::smp::detail::check_failed(#condition, ::fmt::format(__VA_ARGS__), \
                                  ::std::source_location::current());     \
    }                                                                     \
  } while (false)
