// SPDX-License-Identifier: Apache-2.0
// Settings for `assign_auto` with the policy that drives the real scheduler.
#pragma once

#include "smp_runtime/partition/auto_partitioner.h"
#include "smp_runtime/pipeline/step_prediction.h"

namespace smp::partition {

inline AutoOptions auto_options(int partitions, double memory_weight) {
  AutoOptions options{.memory_weight = memory_weight, .state_factor = 4};
  options.step.shape = {.microbatches = 8, .active_microbatches = partitions + 2};
  options.predict = &pipeline::predict_step;
  return options;
}

}  // namespace smp::partition
