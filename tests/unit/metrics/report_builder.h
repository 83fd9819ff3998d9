// SPDX-License-Identifier: Apache-2.0
// The report of a step with all numbers that every job has.
#pragma once

#include <cstdint>

#include "smp_runtime/metrics/outputs/step_report.h"

namespace smp::metrics {

inline StepReport a_report() {
  return {.step = 3,
          .time = 1.75e9,
          .seconds = 0.5,
          .global_batch_size = 8,
          .samples_per_second = 16,
          .pipeline = StepShares{.computed = 0.75},
          .data_wait_share = 0.125,
          .peak_memory_bytes = std::int64_t{1} << 30,
          .messages_sent = 4,
          .bytes_sent = 1000,
          .loss = 2.5,
          .loss_ranks = 1,
          .memory_bytes = {{"parameters", 400}, {"gradients", 0}}};
}

}  // namespace smp::metrics
