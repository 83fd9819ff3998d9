// SPDX-License-Identifier: Apache-2.0
// Runs a step's schedule over a virtual clock: what rank does when, as a function of the step's
// shape alone. The order of work under `deterministic_server` is taken from it, and the
// partitioner's prediction of a step.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smp_runtime/pipeline/task_order.h"

namespace smp::pipeline {

/// One uninterrupted run of a microbatch on a rank. A microbatch is on one rank at a time, so its
/// whole step is a sequence of runs.
struct Run {
  int rank = 0;
  Phase phase = Phase::kForward;
  int depth = 0;
  int64_t work = 1;     ///< how long it takes
  int64_t message = 0;  ///< how long after the run before it can begin
};

struct Simulation {
  std::vector<std::vector<int64_t>> orders;  ///< by rank: the microbatch of each of its runs
  std::vector<int64_t> busy;                 ///< by rank: time at work
  int64_t length = 0;                        ///< of the step
};

/// `microbatches` times the same `runs`, at most `active` of them begun and unfinished. Each rank
/// does one run at a time, chosen as runs_before() says among those that have come and that
/// OpenMicrobatches admits. Messages do not slow each other down.
/// O(microbatches * runs * active) time.
[[nodiscard]] Simulation simulate_schedule(std::span<const Run> runs, int64_t microbatches,
                                           int64_t active, Schedule schedule, int ranks);

}  // namespace smp::pipeline
