// SPDX-License-Identifier: Apache-2.0
// The user script's command line from its hyperparameters: `--key value` for each, always two
// arguments, values as Python's str() prints them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "entrypoint/config/launch_options.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {

/// `hyperparameters` is the decoded object of the user's own ones. Names of one character get one
/// dash, the empty name stays empty; null is an empty argument, an object is `k=v,k2=v2` by key.
/// Throws ConfigError for what no program can be given: a NUL character, or more than 131071 bytes
/// in one argument.
std::vector<std::string> user_arguments(const opt_ml::Value& hyperparameters,
                                        ArgumentStyle style = ArgumentStyle::kPython,
                                        ArgumentOrder order = ArgumentOrder::kSorted);

/// The most bytes that Linux lets one argument hold.
inline constexpr std::size_t kLongestArgumentBytes = 131071;

}  // namespace entrypoint
