// SPDX-License-Identifier: Apache-2.0
// Predicted time of a step under an assignment of modules.
#pragma once

#include <cstdint>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/schedule/simulation.h"

namespace smp::partition {

/// Assumed cost of a message between ranks.
struct LinkCost {
  std::int64_t latency_ns = 0;
  std::int64_t bytes_per_us = 1;
};
inline constexpr LinkCost kCpuLink{.latency_ns = 100'000, .bytes_per_us = 2'000};
inline constexpr LinkCost kGpuLink{.latency_ns = 20'000, .bytes_per_us = 50'000};

struct StepModel {
  schedule::ScheduleShape shape;
  LinkCost link = kCpuLink;
};

/// Simulates the schedule that will run the step, in nanoseconds; a backward takes twice as long as
/// its forward. At most some 200,000 runs are simulated, of at least two microbatches: fewer than
/// asked for where the program is long.
[[nodiscard]] schedule::Simulation predict_step(const CallProgram& program, int devices,
                                                const StepModel& model);

}  // namespace smp::partition
