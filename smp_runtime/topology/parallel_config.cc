// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/parallel_config.h"

#include <array>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/setting_origins.h"

namespace smp::topology {
namespace {

void derive_defaults(ParallelConfig& config, const Given<ParallelConfig>& given) {
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

void warn_of_useless_memory(ParallelConfig& config, const Given<ParallelConfig>& given) {
  if (config.pipeline == "zero_bubble" || !given.contains(find_parameter("pipeline_memory")))
    return;
  config.warnings.push_back(fmt::format(
      "pipeline_memory={} bounds nothing with pipeline={}; active_microbatches does, or set "
      "pipeline to zero_bubble",
      config.pipeline_memory, config.pipeline));
}

void warn_of_no_effect(ParallelConfig& config) {
  const ParallelConfig defaults;
  for (const ConfigParameter& parameter : ConfigParameter::table()) {
    if (parameter.no_effect.empty()) continue;
    const Value value = parameter.read(config);
    if (value == parameter.read(defaults)) continue;
    config.warnings.push_back(fmt::format("{}={} is accepted without effect: {}", parameter.name,
                                          to_text(value), parameter.no_effect));
  }
}

}  // namespace

std::string ParallelConfig::as_json() const { return ConfigParameter::all_as_json(*this); }

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
  const std::array origins{job_level, init_dict};
  const auto given = merge_origins<ParallelConfig>(origins, config.warnings);
  write_given(config, given);
  derive_defaults(config, given);
  check_rules(config, given.contains(find_parameter("default_partition")));
  warn_of_raised_bound(config);
  warn_of_useless_file(config);
  warn_of_useless_memory(config, given);
  warn_of_no_effect(config);
  return config;
}

}  // namespace smp::topology
