// SPDX-License-Identifier: Apache-2.0
// How long a step takes under an assignment: what the partitioner asks the pipeline's scheduler.
#pragma once

#include <cstdint>
#include <functional>
#include <numeric>
#include <vector>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/partition/schedule_shape.h"

namespace smp::partition {

struct StepModel {
  ScheduleShape shape;
  std::int64_t latency_ns = 50'000;       ///< of one message
  std::int64_t bytes_per_us = 10'000;     ///< 10 GB/s
  std::int64_t backward_per_forward = 2;  ///< times the forward's work; 3 where it is recomputed
};

struct PredictedStep {
  std::int64_t step_ns = 0;
  std::vector<std::int64_t> busy_ns;  ///< by device
  int microbatches = 0;               ///< that were simulated: fewer than asked for long programs

  /// Mean share of the step in which a device works.
  [[nodiscard]] double use() const {
    if (step_ns == 0 || busy_ns.empty()) return 1;
    const auto all = std::accumulate(busy_ns.begin(), busy_ns.end(), 0.0);
    return all / (static_cast<double>(step_ns) * static_cast<double>(busy_ns.size()));
  }
};

/// Of a program on so many devices; pipeline::predict_step().
using PredictStep = std::function<PredictedStep(const CallProgram&, int, const StepModel&)>;

}  // namespace smp::partition
