// SPDX-License-Identifier: Apache-2.0
// Settings for `assign_auto`.
#pragma once

#include "smp_runtime/partition/auto_partitioner.h"

namespace smp::partition {

inline AutoOptions auto_options(int partitions, double memory_weight) {
  AutoOptions options{.memory_weight = memory_weight, .state_factor = 4};
  options.step.shape = {.microbatches = 8, .active_microbatches = partitions + 2};
  return options;
}

}  // namespace smp::partition
