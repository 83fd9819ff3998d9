// SPDX-License-Identifier: Apache-2.0
// The parallel settings of a job of SMP v1, checked and complete: what `mp_parameters` and
// `smp.init(dict)` together mean. `train --plan` and `smp.init` both go through here, so that they
// refuse the same mistakes with the same words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp_runtime/topology/setting.h"

namespace smp::topology {

/// Effective value of every key. The initialisers are the defaults; `ConfigParameter::table()`
/// carries the keys' names, limits and meaning.
struct ParallelConfig {
  static constexpr std::string_view kLibrary = "SMP v1";
  static constexpr std::string_view kModule = "smdistributed.modelparallel.torch";
  static constexpr std::string_view kDocument = "smp_runtime/topology/parameters.md";
  using Field =
      std::variant<std::int64_t ParallelConfig::*, double ParallelConfig::*, bool ParallelConfig::*,
                   std::string ParallelConfig::*, std::optional<std::int64_t> ParallelConfig::*,
                   std::optional<std::string> ParallelConfig::*>;

  std::int64_t pipeline_parallel_degree = 1;
  std::int64_t tensor_parallel_degree = 1;
  std::int64_t microbatches = 1;
  std::int64_t active_microbatches = 3;  ///< default: partitions + 2
  std::string pipeline = "interleaved";
  double pipeline_memory = 1;
  std::string optimize = "memory";
  double memory_weight = 0.8;  ///< default: 0.2 when `optimize` is "speed"
  std::string placement_strategy = "cluster";
  bool auto_partition = true;
  std::int64_t default_partition = 0;
  std::optional<std::string> partition_file;
  bool load_partition = false;
  std::string trace_device = "gpu";
  bool skip_tracing = false;
  bool deterministic_server = false;

  bool ddp = false;
  std::optional<std::int64_t> ddp_port;
  std::string ddp_dist_backend = "auto";
  bool overlapping_allreduce = true;
  bool horovod = false;
  bool herring = false;
  bool contiguous = true;

  bool prescaled_batch = false;
  std::int64_t tensor_parallel_seed = 0;
  bool predefined_hooks = true;
  bool match_weights = false;
  bool checkpoint_attentions = false;

  bool offload_activations = false;
  std::int64_t activation_loading_horizon = 4;
  bool shard_optimizer_state = false;
  bool fp16 = false;
  bool bf16 = false;
  bool fp16_params = false;
  bool fp32_grad_accumulation = false;
  bool delayed_parameter_initialization = false;

  std::int64_t sharded_data_parallel_degree = 1;
  std::int64_t sdp_reduce_bucket_size = 500'000'000;
  std::int64_t sdp_param_persistence_threshold = 1'000'000;
  std::int64_t sdp_max_live_parameters = 1'000'000'000;
  bool sdp_hierarchical_allgather = true;
  double sdp_gradient_clipping = 1.0;

  bool checkpoint_on_signal = false;

  bool static_mode = false;
  bool fast_mode = false;

  /// One line each, to be logged once per job. No part of the settings' identity.
  std::vector<std::string> warnings;

  /// A JSON object of all effective values under every documented spelling, aliases included.
  /// Equal settings give equal text, whatever they were written as.
  [[nodiscard]] std::string as_json() const;
};

/// Job-level settings (SM_HP_MP_PARAMETERS) win over the dict given to `smp.init`; a difference is
/// a warning. Throws ConfigError for an unknown key (naming near ones), a wrong type, a value out
/// of range, two spellings of one key with different values, and settings that exclude each other.
ParallelConfig make_parallel_config(const Settings& job_level, const Settings& init_dict = {});

/// "microbatches is 4 here and 2 there" for each setting that is not the same in `here` and
/// `there`, two results of as_json().
std::vector<std::string> differences(const std::string& here, const std::string& there);

/// Checks what depends on the number of processes; all messages carry the numbers.
/// Throws ConfigError unless partitions × tensor_parallel_degree divides `world_size` and the
/// sharding settings fit what is left. Returns advice, one line each.
std::vector<std::string> validate_world(const ParallelConfig& config, int world_size,
                                        int ranks_per_host);

/// Why a model cannot be wrapped by `smp.DistributedModel` under these settings: several replicas
/// without `ddp`, which would drift apart in silence. Ranks and groups work nevertheless.
std::optional<std::string> refusal_to_wrap(const ParallelConfig& config, int world_size);

/// Throws ConfigError for the first pair of settings that exclude each other or miss a companion.
/// `default_partition_given` tells an explicit 0 from the default.
void check_rules(const ParallelConfig& config, bool default_partition_given);

}  // namespace smp::topology
