// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/v2_config.h"

#include <algorithm>

#include "smp_runtime/core/error.h"
#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/setting_origins.h"

namespace smp::topology {
namespace {

constexpr std::string_view kDegrees = "tensor_parallel_degree x hybrid_shard_degree";

void check_degrees(const V2Config& config) {
  const std::int64_t shards = config.hybrid_shard_degree;
  if (config.tensor_parallel_degree > 1 && config.expert_parallel_degree > 1) {
    throw ConfigError(
        "expert_parallel_degree is {} and tensor_parallel_degree is {}; at most one of them may be "
        "above 1",
        config.expert_parallel_degree, config.tensor_parallel_degree);
  }
  if (shards > 0 && config.context_parallel_degree > shards) {
    throw ConfigError("context_parallel_degree is {}; expected at most hybrid_shard_degree, {}",
                      config.context_parallel_degree, shards);
  }
  const auto refuse_above_one = [](std::string_view name, std::int64_t degree,
                                   std::string_view what) {
    if (degree > 1) {
      throw ConfigError("{} is {}: {} is not offered; expected 1", name, degree, what);
    }
  };
  refuse_above_one("context_parallel_degree", config.context_parallel_degree,
                   "context parallelism");
  refuse_above_one("expert_parallel_degree", config.expert_parallel_degree, "expert parallelism");
}

}  // namespace

std::string V2Config::as_json() const { return V2Parameter::all_as_json(*this); }

std::optional<std::int64_t> V2Config::shard_degree(std::int64_t world_size) const {
  if (hybrid_shard_degree > 0) return hybrid_shard_degree;
  if (tensor_parallel_degree > 1) return world_size / tensor_parallel_degree;
  return std::nullopt;
}

V2Config make_v2_config(std::span<const Settings> origins) {
  V2Config config;
  const auto given = merge_origins<V2Config>(origins, config.warnings);
  write_given(config, given);
  return config;
}

void validate_world(const V2Config& config, int world_size) {
  check_degrees(config);
  const std::int64_t shards = std::max<std::int64_t>(config.hybrid_shard_degree, 1);
  const auto refuse_remainder = [&](std::string_view name, std::int64_t degree) {
    if (world_size % degree != 0) {
      throw ConfigError("{} is {}, which does not divide the number of ranks, {}", name, degree,
                        world_size);
    }
  };
  refuse_remainder("tensor_parallel_degree", config.tensor_parallel_degree);
  refuse_remainder("hybrid_shard_degree", shards);
  refuse_remainder(kDegrees, config.tensor_parallel_degree * shards);
}

}  // namespace smp::topology
