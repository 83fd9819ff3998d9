// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "smp_runtime/topology/parameter_table.h"

namespace smp::topology {
namespace {

const std::array kV2Table = std::to_array<V2Parameter>({
    {.name = "hybrid_shard_degree",
     .field = &V2Config::hybrid_shard_degree,
     .help = "ranks over which one copy of the model is sharded; 0: as the script's strategy says, "
             "or all with tensor parallelism; 1: not at all",
     .least = 0,
     .most = kMaxDegree},
    {.name = "sm_activation_offloading",
     .field = &V2Config::sm_activation_offloading,
     .help = "offload_wrapper moves the inputs of checkpointed layers to the host until their "
             "backwards; false: it is PyTorch's own"},
    {.name = "activation_loading_horizon",
     .field = &V2Config::activation_loading_horizon,
     .help = "inputs of checkpointed layers that are on the device at once, the one in use among "
             "them",
     .least = 1,
     .most = kMaxCount},
    {.name = "fsdp_cache_flush_warnings",
     .field = &V2Config::fsdp_cache_flush_warnings,
     .help = "warn when the allocator of the GPU has flushed its cache in a step"},
    {.name = "allow_empty_shards",
     .field = &V2Config::allow_empty_shards,
     .help = "accepted; ranks may have no piece of a tensor in any case"},
    {.name = "tensor_parallel_degree",
     .field = &V2Config::tensor_parallel_degree,
     .help = "neighbouring ranks over which transform splits layers; its product with "
             "hybrid_shard_degree divides the number of ranks",
     .least = 1,
     .most = kMaxDegree},
    {.name = "context_parallel_degree",
     .field = &V2Config::context_parallel_degree,
     .help = "ranks over which a sequence is split: above 1 not offered",
     .least = 1,
     .most = kMaxDegree},
    {.name = "expert_parallel_degree",
     .field = &V2Config::expert_parallel_degree,
     .help = "ranks over which experts are spread: above 1 not offered",
     .least = 1,
     .most = kMaxDegree},
    {.name = "random_seed",
     .field = &V2Config::random_seed,
     .help = "of what delayed split models begin with; plus the tensor rank, of what "
             "get_rng_state_tracker().fork() draws",
     .least = 0,
     .most = kMaxSize},
});

}  // namespace

template <>
std::span<const V2Parameter> V2Parameter::table() {
  return kV2Table;
}

}  // namespace smp::topology
