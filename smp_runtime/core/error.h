// SPDX-License-Identifier: Apache-2.0
// The library's errors, with formatted texts, and the check of our own assumptions.
#pragma once

#include <source_location>
#include <string>

#include "smp/error.h"
#include <fmt/core.h>

namespace smp::detail {
[[noreturn]] void check_failed(const char* condition, const std::string& message,
                               const std::source_location& where);
}  // namespace smp::detail

/// Throws InternalError with file and line unless `condition` holds. The rest is a format string
/// and its arguments.
#define SMP_CHECK(condition, ...)                                         \
  do {                                                                    \
    if (!(condition)) {                                                   \
      ::smp::detail::check_failed(#condition, ::fmt::format(__VA_ARGS__), \
                                  ::std::source_location::current());     \
    }                                                                     \
  } while (false)
