// SPDX-License-Identifier: Apache-2.0
// Every key of `mp_parameters`, once: the source of names, limits and help. Defaults
// are the initialisers of ParallelConfig.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/setting.h"

namespace smp::topology {

using Field =
    std::variant<std::int64_t ParallelConfig::*, double ParallelConfig::*, bool ParallelConfig::*,
                 std::string ParallelConfig::*, std::optional<std::int64_t> ParallelConfig::*,
                 std::optional<std::string> ParallelConfig::*>;

struct ConfigParameter {
  std::string_view name;
  Field field;
  std::string_view help;
  std::string_view alias = {};
  double least = 0;                                ///< numbers only, inclusive
  double most = 0;                                 ///< numbers only, inclusive
  std::span<const std::string_view> choices = {};  ///< texts only; empty: any text
  /// Why it has no effect, for keys of old scripts: a value other than the default is a warning.
  std::string_view no_effect = {};
  std::string_view derived_default = {};  ///< how the default follows from other keys
};

std::span<const ConfigParameter> parameter_table();

/// A Markdown table of all of it: smp_runtime/topology/parameters.md.
std::string parameters_as_markdown();

/// The parameter with this name or alias, or null.
const ConfigParameter* find_parameter(std::string_view name);

/// All names and aliases, in the order of the table.
std::vector<std::string_view> parameter_names();

/// Description of the legal values: "an integer >= 1", "one of interleaved, simple".
std::string expectation(const ConfigParameter& parameter);

Value read_field(const ParallelConfig& config, const ConfigParameter& parameter);

/// Stores `value`, converted where its meaning is plain: booleans written as 0, 1 or text, integral
/// floats, numbers written as text. Null leaves the field as it is.
/// Throws ConfigError that starts with `where` for anything else and for values out of range.
void write_field(ParallelConfig& config, const ConfigParameter& parameter, const Setting& setting,
                 std::string_view where);

}  // namespace smp::topology
