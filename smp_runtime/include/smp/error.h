// SPDX-License-Identifier: Apache-2.0
// The errors of this library: one base, four kinds. The kind decides the category line of
// /opt/ml/output/failure.
#pragma once

#include <stdexcept>
#ifdef SMP_FORMATS_ERRORS  // inside the library; a member template changes no layout
#include <utility>

#include <fmt/core.h>
#endif

/// The library's namespace for training programs in C++.
namespace smp {

/// Base of every error that the library throws. `what()` says what was found, where, what was
/// expected and what to do, in one line a user can act on.
class Error : public std::runtime_error {
 public:
  using runtime_error::runtime_error;

#ifdef SMP_FORMATS_ERRORS
  // The first argument apart: a text alone is taken as it is. (Clang 16 cannot inherit a
  // constructor that a requires-clause constrains.)
  template <typename First, typename... Rest>
  explicit Error(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest)
      : runtime_error(
            fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
#endif
};

/// The job asked for something impossible.
class ConfigError : public Error {
  using Error::Error;
};

/// A peer, a device, the network or the operating system failed.
class HostError : public Error {
  using Error::Error;
};

/// The training program failed.
class UserCodeError : public Error {
  using Error::Error;
};

/// Our bug; the message asks for a report.
class InternalError : public Error {
  using Error::Error;
};

}  // namespace smp
