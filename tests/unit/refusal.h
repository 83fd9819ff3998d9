// SPDX-License-Identifier: Apache-2.0
// What a user is told when something is refused.
#pragma once

#include <string>

#include "smp_runtime/core/error.h"

namespace smp {

/// The message of the ConfigError that `action` throws; "accepted" if it throws none.
template <typename Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace smp
