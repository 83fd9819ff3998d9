// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/job_partition.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "smp_runtime/partition/compat_partitioner.h"

namespace smp::partition {
namespace {

/// Bytes that a device needs for one recompute at a time, where AutoOptions::memory() has not
/// counted all that is recomputed there.
std::int64_t recompute_beside(const AutoOptions& options, const JobModel& model) {
  return options.memory().kept_recomputes > 0 ? 0 : model.recompute_bytes;
}

AutoOptions options_of(const topology::ParallelConfig& config, const JobModel& model) {
  AutoOptions options{
      .memory_weight = config.memory_weight,
      .state_factor = state_factor(config, model),
      .step = {.shape = shape_of(config), .link = model.on_gpus ? kGpuLink : kCpuLink}};
  if (model.device_bytes == 0) return options;
  const auto usable =
      static_cast<std::int64_t>(static_cast<double>(model.device_bytes) * kUsableShare);
  options.capacity_bytes = std::max<std::int64_t>(1, usable - recompute_beside(options, model));
  return options;
}

}  // namespace

schedule::ScheduleShape shape_of(const topology::ParallelConfig& config) {
  return {.microbatches = config.microbatches,
          .active_microbatches = config.active_microbatches,
          .schedule = schedule::parse_schedule(config.pipeline),
          .memory = config.pipeline_memory};
}

int state_factor(const topology::ParallelConfig& config, const JobModel& model) {
  int kept = 2;     // parameter and gradient
  int stepped = 2;  // Adam's two moments
  if (model.parameter_bytes < 4 * model.elements) {
    stepped = 6;  // 16-bit parameters have 32-bit masters
  } else if (config.fp16 || config.bf16) {
    kept = 1;  // and so have those that become 16-bit later
    stepped = 3;
  }
  // Slices of tensor ranks, which are most of a model, are shared by the replicas.
  const int sharing = config.shard_optimizer_state ? model.replicas : 1;
  return kept + (stepped + sharing - 1) / sharing;
}

AutoDecision decide_job(const ModuleTree& tree, const topology::ParallelConfig& config,
                        const JobModel& model) {
  return assign_auto(tree, static_cast<int>(config.pipeline_parallel_degree),
                     options_of(config, model));
}

JobPartition partition_job(const ModuleTree& tree, const topology::ParallelConfig& config,
                           const JobModel& model, const std::string& partitioner) {
  const int partitions = static_cast<int>(config.pipeline_parallel_degree);
  if (partitioner == "compat") {
    return {.assignment = assign_compat(tree, partitions, config.memory_weight),
            .summary = "Partition chosen: level by level, as SMP_PARTITIONER=compat asks for"};
  }
  const AutoOptions options = options_of(config, model);
  AutoDecision decision = decide_job(tree, config, model);
  const Proposal& chosen = decision.chosen;
  const StepPrediction predicted{.step_ms = static_cast<double>(chosen.predicted_step_ns) / 1e6,
                                 .use = chosen.predicted_use,
                                 .bytes = chosen.worst_bytes + recompute_beside(options, model)};
  return {.assignment = std::move(decision.assignment),
          .summary = fmt::format("{}; fullest partition {}", decision.summary(),
                                 human_bytes(predicted.bytes)),
          .warning = decision.fits ? ""
                                   : "no partition found that fits the memory of the devices; took "
                                     "the smallest",
          .predicted = predicted};
}

}  // namespace smp::partition
