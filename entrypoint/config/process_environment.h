// SPDX-License-Identifier: Apache-2.0
// The environment as a value. It is read in one place per run and passed on.
#pragma once

#include <string>
#include <string_view>

#include "smp_runtime/core/variables.h"

namespace entrypoint {

using EnvironmentMap = smp::Variables;

/// The variable's value, or `fallback` when it is unset or empty.
std::string value_or(const EnvironmentMap& environment, std::string_view name,
                     std::string_view fallback = "");

}  // namespace entrypoint
