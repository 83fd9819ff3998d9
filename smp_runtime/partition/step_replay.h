// SPDX-License-Identifier: Apache-2.0
// Predicts how long a step takes: runs the schedule over a virtual clock.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/partition/schedule_shape.h"

namespace smp::partition {

/// What a device can do next.
struct ReplayTask {
  std::int64_t microbatch = 0;
  bool backward = false;
  int depth = 0;             ///< of nested calls
  std::int64_t arrival = 0;  ///< order in which the device learnt of it
};

/// Whether a task goes before another one on a device whose last task was a backward, or not: the
/// policy of the pipeline's scheduler, handed in by whoever may use it, so that one piece of code
/// decides both here and there.
using TaskOrder = std::function<bool(bool last_was_backward, const ReplayTask&, const ReplayTask&)>;

struct ReplayOptions {
  ScheduleShape shape;
  std::int64_t latency_ns = 50'000;       ///< of one message
  std::int64_t bytes_per_us = 10'000;     ///< 10 GB/s
  std::int64_t backward_per_forward = 2;  ///< times the forward's work; 3 where it is recomputed
  TaskOrder order;
};

struct Replay {
  std::int64_t step_ns = 0;
  std::vector<std::int64_t> busy_ns;  ///< by device
  int microbatches = 0;               ///< that were replayed: fewer than asked for long programs

  /// Mean share of the step in which a device works.
  [[nodiscard]] double use() const;
};

/// Every device runs one task at a time and never stops one. Device of the first run admits
/// microbatches, as many at a time as the shape has open. Messages do not slow each other down.
/// At most some 200,000 runs are replayed, of at least two microbatches.
Replay replay_step(const CallProgram& program, int devices, const ReplayOptions& options);

}  // namespace smp::partition
