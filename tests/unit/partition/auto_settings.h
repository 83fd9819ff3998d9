// SPDX-License-Identifier: Apache-2.0
// Settings for `assign_auto` with the policy that drives the real scheduler.
#pragma once

#include "smp_runtime/partition/auto_partitioner.h"
#include "smp_runtime/pipeline/task_order.h"

namespace smp::partition {

inline TaskOrder order_of(pipeline::Schedule schedule) {
  return [schedule](bool last_was_backward, const ReplayTask& a, const ReplayTask& b) {
    const auto phase = [](bool backward) {
      return backward ? pipeline::Phase::kBackward : pipeline::Phase::kForward;
    };
    const auto key = [&](const ReplayTask& task) {
      return pipeline::TaskKey{.microbatch = task.microbatch,
                               .phase = phase(task.backward),
                               .depth = task.depth,
                               .arrival = task.arrival};
    };
    return pipeline::runs_before(schedule, phase(last_was_backward), key(a), key(b));
  };
}

inline AutoOptions auto_options(int partitions, double memory_weight) {
  AutoOptions options{.memory_weight = memory_weight, .state_factor = 4};
  options.replay.shape = {.microbatches = 8, .active_microbatches = partitions + 2};
  options.replay.order = order_of(pipeline::Schedule::kInterleaved);
  return options;
}

}  // namespace smp::partition
