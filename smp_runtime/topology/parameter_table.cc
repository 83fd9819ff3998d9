// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/parameter_table.h"

#include <algorithm>
#include <array>

namespace smp::topology {
namespace {

using Config = ParallelConfig;

constexpr double kMaxDegree = 1 << 20;
constexpr double kMaxCount = 1 << 30;
constexpr double kMaxSize = 1e15;

constexpr std::array<std::string_view, 4> kPipelines{"interleaved", "zero_bubble", "simple",
                                                     "_only_forward"};
constexpr std::array<std::string_view, 2> kOptimize{"memory", "speed"};
constexpr std::array<std::string_view, 8> kPlacements{"cluster", "spread", "DPT", "DTP",
                                                      "PDT",     "PTD",    "TDP", "TPD"};
constexpr std::array<std::string_view, 3> kTraceDevices{"gpu", "cpu", "meta"};
constexpr std::array<std::string_view, 4> kBackends{"auto", "nccl", "gloo", "smddp"};

const std::array kTable = std::to_array<ConfigParameter>({
    {.name = "partitions",
     .field = &Config::pipeline_parallel_degree,
     .help = "pipeline stages; partitions x tensor_parallel_degree divides the world size",
     .alias = "pipeline_parallel_degree",
     .least = 1,
     .most = kMaxDegree},
    {.name = "tensor_parallel_degree",
     .field = &Config::tensor_parallel_degree,
     .help = "ranks over which a distributed layer is split; above 1 needs ddp",
     .least = 1,
     .most = kMaxDegree},
    {.name = "microbatches",
     .field = &Config::microbatches,
     .help = "equal parts of the batch given to a step",
     .least = 1,
     .most = kMaxCount},
    {.name = "active_microbatches",
     .field = &Config::active_microbatches,
     .help = "microbatches in flight at once",
     .least = 1,
     .most = kMaxCount,
     .derived_default = "partitions + 2; with zero_bubble pipeline_memory x partitions + 2"},
    {.name = "pipeline",
     .field = &Config::pipeline,
     .help = "interleaved: forwards and backwards in turn; simple: all forwards, then all "
             "backwards; _only_forward: steps have no backward; zero_bubble: interleaved, with "
             "gradients of parameters computed when a rank would wait",
     .choices = kPipelines},
    {.name = "pipeline_memory",
     .field = &Config::pipeline_memory,
     .help = "with zero_bubble: activations that a rank may keep, as a multiple of 1F1B's, which "
             "are its own of as many microbatches as there are partitions",
     .least = 0,
     .most = kMaxDegree},
    {.name = "optimize",
     .field = &Config::optimize,
     .help = "what tensor parallelism and the partitioner favour",
     .choices = kOptimize},
    {.name = "memory_weight",
     .field = &Config::memory_weight,
     .help = "share of memory, against time, in the partitioner's cost",
     .least = 0,
     .most = 1,
     .derived_default = "0.8 with optimize=memory, 0.2 with speed"},
    {.name = "placement_strategy",
     .field = &Config::placement_strategy,
     .help = "order of the axes, the right-most varies fastest: cluster is DPT, spread TPD",
     .choices = kPlacements},
    {.name = "auto_partition",
     .field = &Config::auto_partition,
     .help = "false: modules go where smp.partition and default_partition say"},
    {.name = "default_partition",
     .field = &Config::default_partition,
     .help = "partition of modules without an annotation; below partitions",
     .least = 0,
     .most = kMaxDegree},
    {.name = "partition_file",
     .field = &Config::partition_file,
     .help = "file for the partition decision: written, or read with load_partition"},
    {.name = "load_partition",
     .field = &Config::load_partition,
     .help = "take the partition decision from partition_file"},
    {.name = "trace_device",
     .field = &Config::trace_device,
     .help = "default of DistributedModel's argument of this name",
     .choices = kTraceDevices},
    {.name = "skip_tracing",
     .field = &Config::skip_tracing,
     .help = "partition without a traced forward"},
    {.name = "deterministic_server",
     .field = &Config::deterministic_server,
     .help = "serve requests in one fixed order"},
    {.name = "ddp",
     .field = &Config::ddp,
     .help = "data parallelism over the replicas, and process groups"},
    {.name = "ddp_port",
     .field = &Config::ddp_port,
     .help = "port of the rendezvous; needs ddp",
     .least = 1,
     .most = 65535},
    {.name = "ddp_dist_backend",
     .field = &Config::ddp_dist_backend,
     .help = "backend of the process groups; auto: nccl with CUDA, else gloo; needs ddp",
     .choices = kBackends},
    {.name = "overlapping_allreduce",
     .field = &Config::overlapping_allreduce,
     .help = "default of DistributedModel's argument of this name"},
    {.name = "horovod", .field = &Config::horovod, .help = "not offered with PyTorch: use ddp"},
    {.name = "herring",
     .field = &Config::herring,
     .help = "old name of SMDDP: not offered, use ddp_dist_backend"},
    {.name = "contiguous",
     .field = &Config::contiguous,
     .help = "a TensorFlow setting",
     .no_effect = "it concerns TensorFlow only"},
    {.name = "prescaled_batch",
     .field = &Config::prescaled_batch,
     .help = "all ranks of a tensor-parallel group feed the same batch"},
    {.name = "tensor_parallel_seed",
     .field = &Config::tensor_parallel_seed,
     .help = "seed of the initial values of distributed parameters",
     .least = 0,
     .most = kMaxSize},
    {.name = "predefined_hooks",
     .field = &Config::predefined_hooks,
     .help = "register the built-in tensor-parallel hooks"},
    {.name = "_match_weights",
     .field = &Config::match_weights,
     .help = "distributed modules copy the weights of what they replace"},
    {.name = "checkpoint_attentions",
     .field = &Config::checkpoint_attentions,
     .help = "recompute attention inside distributed layers in backward"},
    {.name = "offload_activations",
     .field = &Config::offload_activations,
     .help = "keep checkpointed activations in memory of the CPU"},
    {.name = "activation_loading_horizon",
     .field = &Config::activation_loading_horizon,
     .help = "how many offloaded activations are fetched ahead of the one in use",
     .least = 1,
     .most = kMaxCount},
    {.name = "shard_optimizer_state",
     .field = &Config::shard_optimizer_state,
     .help = "split the optimizer's state over the replicas"},
    {.name = "fp16",
     .field = &Config::fp16,
     .help = "16-bit parameters with 32-bit masters and loss scaling"},
    {.name = "bf16",
     .field = &Config::bf16,
     .help = "bfloat16 parameters with 32-bit masters; excludes fp16"},
    {.name = "fp16_params",
     .field = &Config::fp16_params,
     .help = "initialise distributed modules in 16 bits"},
    {.name = "_fp32_grad_accumulation",
     .field = &Config::fp32_grad_accumulation,
     .help = "accumulate the gradients of 16-bit parameters in 32 bits",
     .no_effect = "with fp16 or bf16 they are accumulated in 32 bits in any case"},
    {.name = "delayed_parameter_initialization",
     .field = &Config::delayed_parameter_initialization,
     .help = "create parameters without storage, initialise them on their owner"},
    {.name = "sharded_data_parallel_degree",
     .field = &Config::sharded_data_parallel_degree,
     .help = "ranks over which parameters are sharded; divides the replicas; needs ddp",
     .alias = "hybrid_shard_degree",
     .least = 1,
     .most = kMaxDegree},
    {.name = "sdp_reduce_bucket_size",
     .field = &Config::sdp_reduce_bucket_size,
     .help = "elements per gradient bucket",
     .least = 1,
     .most = kMaxSize},
    {.name = "sdp_param_persistence_threshold",
     .field = &Config::sdp_param_persistence_threshold,
     .help = "tensors with fewer elements are replicated",
     .least = 0,
     .most = kMaxSize},
    {.name = "sdp_max_live_parameters",
     .field = &Config::sdp_max_live_parameters,
     .help = "gathered elements at once",
     .least = 1,
     .most = kMaxSize},
    {.name = "sdp_hierarchical_allgather",
     .field = &Config::sdp_hierarchical_allgather,
     .help = "gather inside each host first"},
    {.name = "sdp_gradient_clipping",
     .field = &Config::sdp_gradient_clipping,
     .help = "norm to which sharded gradients are clipped",
     .least = 0,
     .most = kMaxSize},
    {.name = "checkpoint_on_signal",
     .field = &Config::checkpoint_on_signal,
     .help = "save into SM_CHECKPOINT_DIR on SIGTERM, and end: smp.checkpoint_on_signal()"},
    {.name = "static_mode",
     .field = &Config::static_mode,
     .help = "skip the exchange of message metadata",
     .no_effect = "it changes speed only, and is not used"},
    {.name = "fast_mode",
     .field = &Config::fast_mode,
     .help = "send a child's output to the next child directly",
     .no_effect = "it changes speed only, and is not used"},
});

}  // namespace

std::span<const ConfigParameter> parameter_table() { return kTable; }

const ConfigParameter* find_parameter(std::string_view name) {
  const auto found =
      std::find_if(kTable.begin(), kTable.end(), [&](const ConfigParameter& parameter) {
        return parameter.name == name || (!parameter.alias.empty() && parameter.alias == name);
      });
  return found == kTable.end() ? nullptr : &*found;
}

std::vector<std::string_view> parameter_names() {
  std::vector<std::string_view> names;
  for (const ConfigParameter& parameter : kTable) {
    names.push_back(parameter.name);
    if (!parameter.alias.empty()) names.push_back(parameter.alias);
  }
  return names;
}

}  // namespace smp::topology
