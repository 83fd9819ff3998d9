// SPDX-License-Identifier: Apache-2.0
// The order of work under `deterministic_server`: a function of the step's shape alone, never of
// the times at which messages arrive.
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
};

/// Simulates the step with runs of equal length: `microbatches` times the same `runs`, at most
/// `active` of them begun and unfinished, each rank choosing as runs_before() does among those that
/// OpenMicrobatches admits.
/// Returns for each of `ranks` the microbatches in the order in which it does a run of theirs.
/// O(microbatches * runs * active) time.
[[nodiscard]] std::vector<std::vector<int64_t>> plan_order(std::span<const Run> runs,
                                                           int64_t microbatches, int64_t active,
                                                           Schedule schedule, int ranks);

}  // namespace smp::pipeline
