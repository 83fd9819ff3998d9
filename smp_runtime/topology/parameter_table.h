// SPDX-License-Identifier: Apache-2.0
// Every key of `mp_parameters`, once: the source of names, limits and help. SMP v1 and SMP v2 have
// a table each; defaults are the initialisers of ParallelConfig and of V2Config.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/setting.h"
#include "smp_runtime/topology/v2_config.h"

namespace smp::topology {

// Members of Parameter rather than functions beside it: the shared libraries export those by name.

/// A key of the settings `Config`.
template <typename Config>
struct Parameter {
  std::string_view name;
  typename Config::Field field;
  std::string_view help;
  std::string_view alias = {};
  double least = 0;                                ///< numbers only, inclusive
  double most = 0;                                 ///< numbers only, inclusive
  std::span<const std::string_view> choices = {};  ///< texts only; empty: any text
  /// Why it has no effect, for keys of old scripts: a value other than the default is a warning.
  std::string_view no_effect = {};
  std::string_view derived_default = {};  ///< how the default follows from other keys

  /// Every key of `Config`.
  static std::span<const Parameter> table();
  /// A Markdown table of all of it: smp_runtime/topology/parameters.md, or v2_parameters.md.
  static std::string table_as_markdown();

  /// Description of the legal values: "an integer >= 1", "one of interleaved, simple".
  [[nodiscard]] std::string expectation() const;

  [[nodiscard]] Value read(const Config& config) const;

  /// All fields of `config` as one JSON object, under every spelling.
  static std::string all_as_json(const Config& config);

  /// Stores the value of `setting`, converted where its meaning is plain: booleans written as 0, 1
  /// or text, integral floats, numbers written as text. Null leaves the field as it is.
  /// Throws ConfigError that starts with `where` for anything else and for values out of range.
  void write(Config& config, const Setting& setting, std::string_view where) const;
};
using ConfigParameter = Parameter<ParallelConfig>;
using V2Parameter = Parameter<V2Config>;

template <>
std::span<const ConfigParameter> ConfigParameter::table();
template <>
std::span<const V2Parameter> V2Parameter::table();

inline constexpr double kMaxDegree = 1 << 20;
inline constexpr double kMaxCount = 1 << 30;
inline constexpr double kMaxSize = 1e15;

/// The parameter of `Config` with this name or alias, or null.
template <typename Config = ParallelConfig>
const Parameter<Config>* find_parameter(std::string_view name) {
  const auto table = Parameter<Config>::table();
  const auto found = std::ranges::find_if(table, [&](const Parameter<Config>& parameter) {
    return parameter.name == name || (!parameter.alias.empty() && parameter.alias == name);
  });
  return found == table.end() ? nullptr : &*found;
}

/// All names and aliases of `Config`, in the order of the table.
template <typename Config = ParallelConfig>
std::vector<std::string_view> parameter_names() {
  std::vector<std::string_view> names;
  for (const Parameter<Config>& parameter : Parameter<Config>::table()) {
    names.push_back(parameter.name);
    if (!parameter.alias.empty()) names.push_back(parameter.alias);
  }
  return names;
}

}  // namespace smp::topology
