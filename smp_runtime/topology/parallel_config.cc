// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/parallel_config.h"

#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

// One parameter as an origin gave it: under which spelling, and with which value.
using Given = std::map<const ConfigParameter*, Setting>;

[[noreturn]] void refuse_unknown(const std::string& name, const std::string& where) {
  const auto known = parameter_names();
  const auto near = near_names(name, known);
  throw ConfigError("{}: unknown key \"{}\"; {}", where, name,
                    near.empty() ? "smp_runtime/topology/parameters.md lists the known ones"
                                 : fmt::format("did you mean {}?", fmt::join(near, " or ")));
}

// Converts and checks each entry against the table; nothing is resolved across origins yet.
Given read_origin(const Settings& settings, std::vector<std::string>& warnings) {
  Given given;
  for (const Setting& entry : settings.entries) {
    const ConfigParameter* parameter = find_parameter(entry.name);
    if (parameter == nullptr) {
      if (!entry.name.starts_with('_')) refuse_unknown(entry.name, settings.where);
      warnings.push_back(fmt::format("{}: private key \"{}\" is not known here and is ignored",
                                     settings.where, entry.name));
      continue;
    }
    if (std::holds_alternative<std::monostate>(entry.value)) continue;
    ParallelConfig scratch;
    write_field(scratch, *parameter, entry, settings.where);
    Setting clean{.name = entry.name, .value = read_field(scratch, *parameter)};
    const auto [before, fresh] = given.emplace(parameter, clean);
    if (!fresh && before->second.value != clean.value) {
      throw ConfigError("{}: {} is {} but {} is {}; both name the same setting, give one of them",
                        settings.where, before->second.name, to_text(before->second.value),
                        clean.name, to_text(clean.value));
    }
  }
  return given;
}

// Job-level values win.
Given merge(const Given& job, const Given& dict, const Settings& job_level,
            const Settings& init_dict, std::vector<std::string>& warnings) {
  Given merged = job;
  for (const auto& [parameter, setting] : dict) {
    const auto [winner, fresh] = merged.emplace(parameter, setting);
    if (fresh || winner->second.value == setting.value) continue;
    warnings.push_back(fmt::format("{}={} of {} wins over {}={} of {}", winner->second.name,
                                   to_text(winner->second.value), job_level.where, setting.name,
                                   to_text(setting.value), init_dict.where));
  }
  return merged;
}

void derive_defaults(ParallelConfig& config, const Given& given) {
  if (!given.contains(find_parameter("active_microbatches"))) {
    const double memory = config.pipeline == "zero_bubble" ? config.pipeline_memory : 1;
    const double most = memory * static_cast<double>(config.pipeline_parallel_degree);
    config.active_microbatches = static_cast<std::int64_t>(std::ceil(most)) + 2;
  }
  if (!given.contains(find_parameter("memory_weight")) && config.optimize == "speed") {
    config.memory_weight = 0.2;
  }
}

// With fewer in flight the first backward would wait for forwards that never begin.
void warn_of_raised_bound(ParallelConfig& config) {
  if (config.pipeline != "simple" || config.active_microbatches >= config.microbatches) return;
  config.warnings.push_back(fmt::format(
      "pipeline=simple runs all forwards of a step before its first backward, so that all {} "
      "microbatches are in flight, not active_microbatches={}; interleaved keeps to that",
      config.microbatches, config.active_microbatches));
}

void warn_of_useless_file(ParallelConfig& config) {
  if (!config.partition_file || config.pipeline_parallel_degree > 1) return;
  config.warnings.push_back(fmt::format(
      "partition_file={} is neither written nor read: with one partition all modules are on it; "
      "set partitions or pipeline_parallel_degree above 1, or leave the file out",
      *config.partition_file));
}

void warn_of_useless_memory(ParallelConfig& config, const Given& given) {
  if (config.pipeline == "zero_bubble" || !given.contains(find_parameter("pipeline_memory")))
    return;
  config.warnings.push_back(fmt::format(
      "pipeline_memory={} bounds nothing with pipeline={}; active_microbatches does, or set "
      "pipeline to zero_bubble",
      config.pipeline_memory, config.pipeline));
}

void warn_of_no_effect(ParallelConfig& config) {
  const ParallelConfig defaults;
  for (const ConfigParameter& parameter : parameter_table()) {
    if (parameter.no_effect.empty()) continue;
    const Value value = read_field(config, parameter);
    if (value == read_field(defaults, parameter)) continue;
    config.warnings.push_back(fmt::format("{}={} is accepted without effect: {}", parameter.name,
                                          to_text(value), parameter.no_effect));
  }
}

}  // namespace

std::string ParallelConfig::as_json() const {
  nlohmann::ordered_json values = nlohmann::ordered_json::object();
  for (const ConfigParameter& parameter : parameter_table()) {
    const auto value = nlohmann::ordered_json::parse(to_text(read_field(*this, parameter)));
    values[std::string(parameter.name)] = value;
    if (!parameter.alias.empty()) values[std::string(parameter.alias)] = value;
  }
  return values.dump();
}

std::vector<std::string> differences(const std::string& here, const std::string& there) {
  const auto mine = nlohmann::ordered_json::parse(here);
  const auto theirs = nlohmann::ordered_json::parse(there);
  std::vector<std::string> found;
  for (const auto& [key, value] : mine.items()) {
    const auto other = theirs.contains(key) ? theirs[key] : nlohmann::ordered_json();
    if (other == value) continue;
    found.push_back(fmt::format("{} is {} here and {} there", key, value.dump(), other.dump()));
  }
  return found;
}

ParallelConfig make_parallel_config(const Settings& job_level, const Settings& init_dict) {
  ParallelConfig config;
  const Given job = read_origin(job_level, config.warnings);
  const Given dict = read_origin(init_dict, config.warnings);
  const Given given = merge(job, dict, job_level, init_dict, config.warnings);
  for (const auto& [parameter, setting] : given) {
    write_field(config, *parameter, setting, job_level.where);
  }
  derive_defaults(config, given);
  check_rules(config, given.contains(find_parameter("default_partition")));
  warn_of_raised_bound(config);
  warn_of_useless_file(config);
  warn_of_useless_memory(config, given);
  warn_of_no_effect(config);
  return config;
}

}  // namespace smp::topology
