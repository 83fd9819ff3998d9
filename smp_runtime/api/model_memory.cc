// SPDX-License-Identifier: Apache-2.0
// Memory for the state of a model on this rank.
#include <ATen/Context.h>

#include "smp_runtime/api/model_core.h"
#include "smp_runtime/metrics/process_memory.h"

namespace smp {
namespace {

// With Adam, for a parameter's value, its gradient and two moments (ZeRO, arXiv:1910.02054). In 16
// bits values and gradients take half, and a master the other half.
constexpr std::int64_t kStateBytes = 16;

}  // namespace

/// By the names that Python's smp.memory_summary has.
metrics::MemoryLedger DistributedModel::Core::memory() const {
  sharding::StoreUse use;
  if (state_) {
    use = state_->store().use();
  } else {
    for (const at::Tensor& parameter : parameters_) {
      use.shards += static_cast<std::int64_t>(parameter.nbytes());
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) use.gradients += static_cast<std::int64_t>(gradient.nbytes());
    }
  }
  return {{"parameters", use.shards},
          {"persistent", use.persistent},
          {"live", use.live},
          {"peak_live", use.peak_live},
          {"gradients", use.gradients},
          {"optimizer", optimizer_bytes_ ? optimizer_bytes_() : 0},
          {"activations", engine_->activation_bytes()},
          {"offloaded", activations_ ? activations_->stats().slow_bytes : 0}};
}

/// 0 where there is no formula, as with shard_optimizer_state alone.
std::int64_t DistributedModel::Core::state_by_formula() const {
  std::int64_t bytes = 0;
  if (!state_) {
    for (const at::Tensor& parameter : parameters_) bytes += kStateBytes * parameter.numel();
    return bytes;
  }
  if (!state_->plan().on_demand) return 0;
  for (const sharding::StoredParameter& parameter : state_->parameters()) {
    bytes += kStateBytes * parameter.tensor.numel() / state_->groups().degree;
  }
  return bytes;
}

/// Without what does not depend on the batch and comes and goes within a step: memory of gathered
/// parameters, and the slow one of activations.
std::int64_t DistributedModel::Core::memory_in_use() const {
  sharding::StoreUse use;
  if (state_) use = state_->store().use();
  const bool on_gpu = device().is_cuda();
  const std::int64_t slow = activations_ && !on_gpu ? activations_->stats().arena_bytes : 0;
  return metrics::memory_in_use(device()) - use.live - use.spare - slow;
}

at::Device DistributedModel::Core::device() const {
  for (const Unit& unit : units_) {  // of any partition: this one may have no parameters
    if (!unit.parameters.empty()) return unit.parameters.front().tensor.device();
  }
  return at::kCPU;
}

}  // namespace smp
