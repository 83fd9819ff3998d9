// SPDX-License-Identifier: Apache-2.0
// Settings of several origins, such as a job's and those of a script, made into one value of each
// key by a table of parameters.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/setting.h"

namespace smp::topology {

/// The value that a key gets, as it was spelled there.
struct GivenSetting {
  Setting setting;
  std::string_view where;  ///< of Settings, which outlive this
};

/// Keys that are given; the others have their defaults.
template <typename Config>
using Given = std::map<const Parameter<Config>*, GivenSetting>;

/// Converts and checks each entry; an origin goes before those behind it, and `warnings` gets a
/// line where they differ, or a private key is ignored. Throws ConfigError for a key that the table
/// of Config has not, with near names or the library that has it, for a value that the key cannot
/// have, and for two spellings of one key in an origin with different values.
template <typename Config>
Given<Config> merge_origins(std::span<const Settings> origins, std::vector<std::string>& warnings);

template <typename Config>
void write_given(Config& config, const Given<Config>& given) {
  for (const auto& [parameter, value] : given) {
    parameter->write(config, value.setting, value.where);
  }
}

}  // namespace smp::topology
