// SPDX-License-Identifier: Apache-2.0
// The library's errors, with formatted texts, what the system and the language of the program add
// to them, and the check of our own assumptions.
//
// Code below the faces of the library, which are Python's and C++'s, states facts: it knows no
// names of either. A face says once what its users can do about each situation.
#pragma once

#include <source_location>
#include <string>

#include "smp/error.h"
#include <fmt/core.h>

namespace smp {

/// strerror's text; where a limit of the process was reached, the limit and how it is raised.
[[nodiscard]] std::string system_error_text(int error);

/// A situation that calls of the program have led to.
enum class Advice {
  kOutsideOfStep,    ///< a call that only the function of a step can make
  kForeignBackward,  ///< a backward that is not the step's own
  kFewerBatches,     ///< ranks may have run out of batches before others
  kShardedValue,     ///< the value of a sharded parameter was used where it is not
  kRemoteValue,      ///< the value of a parameter of another partition was used
  kLostWrite,        ///< a parameter was changed whose values come from elsewhere
};

/// Words on a situation, with what joins them to the facts, such as "; "; empty for none.
using AdviceWords = const char* (*)(Advice);

/// To be called once, as a face is loaded and before errors are thrown.
void set_advice_words(AdviceWords words);

/// `facts` with the words of the face behind them.
[[nodiscard]] std::string advised(std::string facts, Advice advice);

}  // namespace smp

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
