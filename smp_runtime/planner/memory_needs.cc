// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/memory_needs.h"

#include <algorithm>
#include <numeric>

#include "smp_runtime/partition/job_partition.h"
#include "smp_runtime/planner/cost_tree.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::planner {
namespace {

constexpr double kMasterBytes = 4;
constexpr double kBucketBytes = 25 << 20;  // of DistributedModel(bucket_cap_mb=25)
constexpr double kBuckets = 2;             // one is filled while another one travels

/// Bytes by which a rank holds one element of a parameter.
struct ElementNeeds {
  double parameter = 0;
  double gathered = 0;
  double gradient = 0;
  double optimizer = 0;
  double within_step = 0;  ///< gradients until they are with their owners
};

class ElementRule {
 public:
  ElementRule(const ModelProfile& model, const Machines& machines, const Candidate& candidate)
      : config_(candidate.config), moments_(model.moments) {
    const std::int64_t replicas =
        machines.ranks() / (config_.pipeline_parallel_degree * config_.tensor_parallel_degree);
    sharing_ = static_cast<double>(
        config_.shard_optimizer_state ? replicas : config_.sharded_data_parallel_degree);
    is_narrow_ = candidate.is_narrow();
    on_demand_ = config_.sharded_data_parallel_degree > 1;
  }

  [[nodiscard]] ElementNeeds of(const ProfiledParameter& parameter) const {
    const double own = parameter.elements == 0 ? 0
                                               : static_cast<double>(parameter.bytes) /
                                                     static_cast<double>(parameter.elements);
    const double computing = is_narrow_ ? 2 : own;
    const double state = parameter.trains ? moments_ * kMasterBytes : 0;
    const double gradient = parameter.trains ? 1 : 0;
    if (on_demand_) {
      const bool is_whole = parameter.elements < config_.sdp_param_persistence_threshold;
      return {.parameter = kMasterBytes / sharing_ + (is_narrow_ ? 2 / sharing_ : 0),
              .gathered = is_whole || !parameter.trains ? computing : 0,
              .gradient = kMasterBytes * gradient / sharing_,
              .optimizer = state / sharing_};
    }
    const bool has_masters = is_narrow_ || config_.shard_optimizer_state;
    if (!has_masters) {
      const double moment = parameter.trains ? moments_ * own : 0;
      return {.parameter = own, .gradient = own * gradient, .optimizer = moment};
    }
    // Parameters stay whole, and masters lie in an arena beside them, in 32 bits, too.
    return {.parameter = computing + kMasterBytes / sharing_,
            .gradient = kMasterBytes * gradient / sharing_,
            .optimizer = state / sharing_,
            .within_step = computing * gradient};
  }

 private:
  const topology::ParallelConfig& config_;
  double moments_;
  double sharing_ = 1;
  bool is_narrow_ = false;
  bool on_demand_ = false;
};

double held_elements(const ProfiledParameter& parameter, const Candidate& candidate) {
  const double split =
      parameter.is_split ? static_cast<double>(candidate.config.tensor_parallel_degree) : 1;
  return static_cast<double>(parameter.elements) / split;
}

/// Share of the inputs of recomputed modules that stays on the device: those that are fetched
/// ahead.
double offloaded_share(const Candidate& candidate, const Recomputation& how) {
  if (!candidate.config.offload_activations) return 1;
  const auto regions = std::max<std::int64_t>(
      1, std::ranges::count_if(how.kept_bytes, [](std::int64_t bytes) { return bytes > 0; }));
  const auto ahead = static_cast<double>(candidate.config.activation_loading_horizon);
  return std::min(1.0, ahead / static_cast<double>(regions));
}

}  // namespace

MemoryNeeds state_needs(const ModelProfile& model, const Machines& machines,
                        const Candidate& candidate, const std::vector<int>& stage_of, int stage) {
  const ElementRule rule(model, machines, candidate);
  const topology::ParallelConfig& config = candidate.config;
  MemoryNeeds needs;
  double on_demand = 0;  // elements
  double within_step = 0;
  for (std::size_t number = 0; number < model.parameters.size(); ++number) {
    if (stage_of[number] != stage) continue;
    const ProfiledParameter& parameter = model.parameters[number];
    const double elements = held_elements(parameter, candidate);
    const ElementNeeds each = rule.of(parameter);
    needs.parameters += elements * each.parameter;
    needs.gathered += elements * each.gathered;
    needs.gradients += elements * each.gradient;
    needs.optimizer += elements * each.optimizer;
    within_step += elements * each.within_step;
    if (each.gathered == 0) on_demand += elements;
  }
  if (config.sharded_data_parallel_degree > 1) {
    const double live = std::min(on_demand, static_cast<double>(config.sdp_max_live_parameters));
    needs.gathered += live * (candidate.is_narrow() ? 2 : kMasterBytes);
  }
  if (machines.ranks() > config.pipeline_parallel_degree) {
    needs.buffers = std::min(needs.gradients + within_step, kBuckets * kBucketBytes);
  }
  needs.buffers += within_step;
  return needs;
}

MemoryNeeds fullest_needs(const ModelProfile& model, const Machines& machines,
                          const Candidate& candidate, const partition::ModuleTree& tree,
                          const std::vector<int>& device_of) {
  const topology::ParallelConfig& config = candidate.config;
  const int stages = static_cast<int>(config.pipeline_parallel_degree);
  const schedule::ScheduleShape shape = partition::shape_of(config);
  const Recomputation& how = recomputation_of(model, candidate);
  const double once = static_cast<double>(how.once_bytes) * activation_share(model, candidate) /
                      static_cast<double>(config.microbatches);
  std::vector<int> stage_of(model.parameters.size(), 0);
  std::vector<double> kept(static_cast<std::size_t>(stages), 0);
  std::vector<double> deferred(static_cast<std::size_t>(stages), 0);
  const Recomputation* const whole = model.without_recomputation();
  for (int node = tree.size() - 1; node >= 0; --node) {
    const partition::Module& module = tree.module(node);
    for (const int parameter : module.parameters) {
      stage_of[static_cast<std::size_t>(parameter)] = device_of[static_cast<std::size_t>(node)];
    }
    const auto stage = static_cast<std::size_t>(device_of[static_cast<std::size_t>(node)]);
    kept[stage] += static_cast<double>(module.activation_bytes);
    // Work that a backward has left keeps what it has recomputed: OpenMicrobatches bounds it.
    if (shape.schedule == schedule::Schedule::kZeroBubble && whole != nullptr &&
        how.recomputed[static_cast<std::size_t>(node)]) {
      deferred[stage] += static_cast<double>(whole->kept_bytes[static_cast<std::size_t>(node)]) *
                         activation_share(model, candidate) * std::max(1.0, shape.memory) /
                         static_cast<double>(config.microbatches);
    }
  }
  MemoryNeeds fullest;
  for (int stage = 0; stage < stages; ++stage) {
    MemoryNeeds needs = state_needs(model, machines, candidate, stage_of, stage);
    // A rank without a pipeline runs one microbatch after the other.
    const auto open = static_cast<double>(stages == 1 ? 1 : shape.in_flight_at(stage, stages));
    const double of_one = kept[static_cast<std::size_t>(stage)] * offloaded_share(candidate, how);
    needs.activations = of_one * open + std::max(once, deferred[static_cast<std::size_t>(stage)]);
    if (needs.total() > fullest.total()) fullest = needs;
  }
  return fullest;
}

double least_needs(const ModelProfile& model, const Machines& machines,
                   const Candidate& candidate) {
  const topology::ParallelConfig& config = candidate.config;
  const std::int64_t stages = config.pipeline_parallel_degree;
  const std::vector<int> one_stage(model.parameters.size(), 0);
  const MemoryNeeds state = state_needs(model, machines, candidate, one_stage, 0);
  const Recomputation& how = recomputation_of(model, candidate);
  const auto one_microbatch = [&](double of_batch) {
    return of_batch * activation_share(model, candidate) / static_cast<double>(config.microbatches);
  };
  double kept = 0;
  for (std::size_t number = 0; number < model.modules.size(); ++number) {
    const double share = model.modules[number].is_split ? split_share(candidate) : 1;
    kept += share * static_cast<double>(how.kept_bytes[number]);
  }
  // With n of all stages' needs a stage of state s has room for (n - s) / open of the activations.
  const schedule::ScheduleShape shape = partition::shape_of(config);
  double rooms = 0;
  double most_open = 1;
  for (std::int64_t stage = 0; stage < stages; ++stage) {
    const auto open = static_cast<double>(stages == 1 ? 1 : shape.in_flight_at(stage, stages));
    rooms += 1 / open;
    most_open = std::max(most_open, open);
  }
  const double activations = one_microbatch(kept) * offloaded_share(candidate, how);
  const double gathered = stages == 1 ? state.gathered : 0;
  return (activations + state.state() / most_open) / rooms + gathered +
         one_microbatch(static_cast<double>(how.once_bytes));
}

double usable_bytes(const Machines& machines) {
  return static_cast<double>(machines.device.memory_bytes) * partition::kUsableShare;
}

}  // namespace smp::planner
