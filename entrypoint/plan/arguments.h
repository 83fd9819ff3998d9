// SPDX-License-Identifier: Apache-2.0
// Arguments of the user's script from its hyperparameters: `--key value` for each, always two,
// values as Python's str() prints them; or one override `key=value`. Whole commands:
// planned_command.h.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "entrypoint/config/launch_options.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {

using Words = std::vector<std::string>;

inline void append(Words& words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
}

/// The most bytes that Linux lets one argument hold.
inline constexpr std::size_t kLongestArgumentBytes = 131071;
/// For the values of all arguments: a quarter of what Linux lets arguments and environment have.
inline constexpr std::size_t kAllArgumentsBytes = 512 * 1024;

struct UserArguments {
  std::vector<std::string> words;
  std::vector<std::string> left_out;  ///< hyperparameters for which there is no room
};

/// `hyperparameters` is the decoded object of the user's own ones. Names of one character get one
/// dash, the empty name stays empty; null is an empty argument, an object is `k=v,k2=v2` by key. An
/// override has the name as it is, and the value as JSON, text without quotation marks. Values that
/// no argument can hold are left out, and the longest ones until all fit or none has 1 KiB. Throws
/// ConfigError for what no program can be given: a NUL character, a name that is too long.
UserArguments user_arguments(const opt_ml::Value& hyperparameters,
                             ArgumentStyle style = ArgumentStyle::kPython,
                             ArgumentOrder order = ArgumentOrder::kSorted);

}  // namespace entrypoint
