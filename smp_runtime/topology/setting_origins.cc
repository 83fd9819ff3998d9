// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/setting_origins.h"

#include <type_traits>
#include <variant>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace smp::topology {
namespace {

template <typename Config>
using OtherLibrary =
    std::conditional_t<std::is_same_v<Config, ParallelConfig>, V2Config, ParallelConfig>;

template <typename Config>
[[noreturn]] void refuse_unknown(const std::string& name, const std::string& where) {
  using Other = OtherLibrary<Config>;
  if (find_parameter<Other>(name) != nullptr) {
    throw ConfigError("{}: key \"{}\": this is {}: import {}; {}, {}, has no such key", where, name,
                      Other::kLibrary, Other::kModule, Config::kLibrary, Config::kModule);
  }
  const auto known = parameter_names<Config>();
  const auto near = near_names(name, known);
  if (!near.empty()) {
    throw ConfigError("{}: unknown key \"{}\"; did you mean {}?", where, name,
                      fmt::join(near, " or "));
  }
  const auto others = parameter_names<Other>();
  const auto near_others = near_names(name, others);
  if (!near_others.empty()) {
    throw ConfigError("{}: {} has no key \"{}\"; did you mean {} of {}: import {}?", where,
                      Config::kLibrary, name, fmt::join(near_others, " or "), Other::kLibrary,
                      Other::kModule);
  }
  throw ConfigError("{}: unknown key \"{}\"; {} lists the known ones", where, name,
                    Config::kDocument);
}

template <typename Config>
Given<Config> read_origin(const Settings& settings, std::vector<std::string>& warnings) {
  Given<Config> given;
  for (const Setting& entry : settings.entries) {
    const Parameter<Config>* parameter = find_parameter<Config>(entry.name);
    if (parameter == nullptr) {
      if (!entry.name.starts_with('_')) refuse_unknown<Config>(entry.name, settings.where);
      warnings.push_back(fmt::format("{}: private key \"{}\" is not known here and is ignored",
                                     settings.where, entry.name));
      continue;
    }
    if (std::holds_alternative<std::monostate>(entry.value)) continue;
    Config scratch;
    parameter->write(scratch, entry, settings.where);
    const Setting clean{.name = entry.name, .value = parameter->read(scratch)};
    const auto [before, fresh] =
        given.emplace(parameter, GivenSetting{.setting = clean, .where = settings.where});
    const Setting& first = before->second.setting;
    if (!fresh && first.value != clean.value) {
      throw ConfigError("{}: {} is {} but {} is {}; both name the same setting, give one of them",
                        settings.where, first.name, to_text(first.value), clean.name,
                        to_text(clean.value));
    }
  }
  return given;
}

}  // namespace

template <typename Config>
Given<Config> merge_origins(std::span<const Settings> origins, std::vector<std::string>& warnings) {
  Given<Config> merged;
  for (const Settings& origin : origins) {
    for (const auto& [parameter, given] : read_origin<Config>(origin, warnings)) {
      const auto [winner, fresh] = merged.emplace(parameter, given);
      const Setting& first = winner->second.setting;
      if (fresh || first.value == given.setting.value) continue;
      warnings.push_back(fmt::format("{}={} of {} wins over {}={} of {}", first.name,
                                     to_text(first.value), winner->second.where, given.setting.name,
                                     to_text(given.setting.value), given.where));
    }
  }
  return merged;
}

template Given<ParallelConfig> merge_origins(std::span<const Settings>, std::vector<std::string>&);
template Given<V2Config> merge_origins(std::span<const Settings>, std::vector<std::string>&);

}  // namespace smp::topology
