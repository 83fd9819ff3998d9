// SPDX-License-Identifier: Apache-2.0
// The environment as a value. It is read in one place per run and passed on.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace entrypoint {

using EnvironmentMap = std::map<std::string, std::string, std::less<>>;

/// All variables of this process.
EnvironmentMap read_process_environment();

/// The variable's value, or `fallback` when it is unset or empty.
std::string value_or(const EnvironmentMap& environment, std::string_view name,
                     std::string_view fallback = "");

}  // namespace entrypoint
