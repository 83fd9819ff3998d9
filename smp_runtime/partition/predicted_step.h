// SPDX-License-Identifier: Apache-2.0
// How long a step takes under an assignment of modules.
#pragma once

#include <cstdint>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/schedule/simulation.h"

namespace smp::partition {

struct StepModel {
  schedule::ScheduleShape shape;
  std::int64_t latency_ns = 50'000;       ///< of one message
  std::int64_t bytes_per_us = 10'000;     ///< 10 GB/s
  std::int64_t backward_per_forward = 2;  ///< times the forward's work; 3 where it is recomputed
};

/// Simulates the schedule that will run the step, in nanoseconds. At most some 200,000 runs are
/// simulated, of at least two microbatches: fewer than asked for where the program is long.
[[nodiscard]] schedule::Simulation predict_step(const CallProgram& program, int devices,
                                                const StepModel& model);

}  // namespace smp::partition
