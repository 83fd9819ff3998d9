// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/error.h"
#include "smp_runtime/topology/composition.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

void check_pipeline(const ParallelConfig& config, bool default_partition_given) {
  if (!config.auto_partition && !default_partition_given) {
    throw ConfigError(
        "auto_partition=false needs default_partition: the partition of modules without an "
        "annotation; "
        "add \"default_partition\": 0");
  }
  if (config.default_partition >= config.pipeline_parallel_degree) {
    throw ConfigError(
        "default_partition={} does not exist with partitions={}; expected a partition from 0 to {}",
        config.default_partition, config.pipeline_parallel_degree,
        config.pipeline_parallel_degree - 1);
  }
  if (config.load_partition && !config.partition_file) {
    throw ConfigError("load_partition=true needs partition_file: the file to load from");
  }
}

void check_data_parallel(const ParallelConfig& config) {
  if (config.horovod) {
    throw ConfigError("horovod=true is not offered with PyTorch{}; use \"ddp\": true instead",
                      config.ddp ? ", and excludes ddp" : "");
  }
  if (config.herring) {
    throw ConfigError("herring=true is not offered; use \"ddp\": true with ddp_dist_backend");
  }
  if (config.ddp) return;
  const auto needs_ddp = [](std::string_view name, const auto& value) {
    throw ConfigError("{}={} needs data parallelism; add \"ddp\": true", name, value);
  };
  if (config.ddp_port) needs_ddp("ddp_port", *config.ddp_port);
  if (config.ddp_dist_backend != "auto") needs_ddp("ddp_dist_backend", config.ddp_dist_backend);
  if (config.tensor_parallel_degree > 1) {
    needs_ddp("tensor_parallel_degree", config.tensor_parallel_degree);
  }
  if (config.sharded_data_parallel_degree > 1) {
    needs_ddp("sharded_data_parallel_degree", config.sharded_data_parallel_degree);
  }
  if (config.shard_optimizer_state) needs_ddp("shard_optimizer_state", true);
}

void check_compositions(const ParallelConfig& config) {
  if (const auto reason = excluded(config)) throw ConfigError(*reason);
}

std::int64_t model_ranks(const ParallelConfig& config) {
  return config.pipeline_parallel_degree * config.tensor_parallel_degree;
}

}  // namespace

void check_rules(const ParallelConfig& config, bool default_partition_given) {
  check_pipeline(config, default_partition_given);
  check_data_parallel(config);
  check_compositions(config);
}

std::vector<std::string> validate_world(const ParallelConfig& config, int world_size,
                                        int ranks_per_host) {
  if (world_size < 1 || ranks_per_host < 1) {
    throw ConfigError("world size {} with {} ranks per host; expected at least 1 of each",
                      world_size, ranks_per_host);
  }
  const std::int64_t model = model_ranks(config);
  if (world_size % model != 0) {
    throw ConfigError(
        "world size {} is not divisible by partitions {} x tensor_parallel_degree {} = {}; start a "
        "multiple of {} processes or change the degrees",
        world_size, config.pipeline_parallel_degree, config.tensor_parallel_degree, model, model);
  }
  const std::int64_t replicas = world_size / model;
  const std::int64_t shards = config.sharded_data_parallel_degree;
  if (replicas % shards != 0) {
    throw ConfigError(
        "sharded_data_parallel_degree {} does not divide the {} replicas (world size {} / model "
        "ranks {}); expected a divisor of {}",
        shards, replicas, world_size, model, replicas);
  }
  if (config.shard_optimizer_state && world_size == config.pipeline_parallel_degree) {
    throw ConfigError(
        "shard_optimizer_state=true needs more than one data-parallel rank; world size {} with "
        "partitions {} leaves 1",
        world_size, config.pipeline_parallel_degree);
  }
  std::vector<std::string> advice;
  if (config.tensor_parallel_degree > ranks_per_host) {
    advice.push_back(fmt::format(
        "tensor_parallel_degree {} exceeds the {} ranks of a host: its exchanges cross the network",
        config.tensor_parallel_degree, ranks_per_host));
  }
  return advice;
}

std::optional<std::string> refusal_to_wrap(const ParallelConfig& config, int world_size) {
  const std::int64_t replicas = world_size / model_ranks(config);
  if (!config.ddp && replicas > 1) {
    return fmt::format(
        "world size {} with partitions {} makes {} replicas of the model, but ddp is false: they "
        "would drift apart; set \"ddp\": true or start {} processes",
        world_size, config.pipeline_parallel_degree, replicas, model_ranks(config));
  }
  return std::nullopt;
}

}  // namespace smp::topology
