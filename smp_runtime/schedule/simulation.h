// SPDX-License-Identifier: Apache-2.0
// Runs a step's schedule over a virtual clock: what rank does when, as a function of the step's
// shape alone. The order of work under `deterministic_server`, the partitioner's prediction of a
// step and the report's ideal one are taken from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "smp_runtime/schedule/task_order.h"

namespace smp::schedule {

/// One uninterrupted run of a microbatch on a rank. A microbatch is on one rank at a time, so its
/// whole step is a sequence of runs.
struct Run {
  int rank = 0;
  Phase phase = Phase::kForward;
  int depth = 0;
  bool turns = false;       ///< of the body: a forward that goes on as a backward
  int64_t work = 1;         ///< how long it takes
  int64_t deferred = 0;     ///< of a backward under kZeroBubble: what it leaves for a wait
  bool recomputes = false;  ///< and that keeps activations which the backward has recomputed
  int64_t message = 0;      ///< how long after the run before it can begin
};

/// The runs of a microbatch that goes forward through `stages` ranks, one after the other, and back
/// again, without any transfer. Without a `backward` time it only goes forward.
[[nodiscard]] std::vector<Run> runs_of_equal_stages(int stages, int64_t forward, int64_t backward);

/// A run of one microbatch, or what it has left for later, once that has begun.
struct BegunRun {
  int64_t microbatch = 0;
  size_t run = 0;  ///< its number among those of the microbatch
  int64_t begin = 0;
  bool is_deferred = false;
};

/// What a rank does next for a microbatch: its next run there, or what one of its backwards has
/// left.
struct PlannedWork {
  int64_t microbatch = 0;
  bool is_deferred = false;

  auto operator<=>(const PlannedWork&) const = default;
};

struct Simulation {
  std::vector<std::vector<BegunRun>> begun;  ///< by rank, in their order
  std::vector<int64_t> busy;                 ///< by rank: time at work
  /// By rank, under kZeroBubble: the most that it keeps, see OpenMicrobatches::memory(). Else 0.
  std::vector<double> memory;
  int64_t length = 0;  ///< of the step

  /// By rank: what `begun` has.
  [[nodiscard]] std::vector<std::vector<PlannedWork>> orders() const;
  /// Mean share of the step in which a rank works; 1 for one that takes no time.
  [[nodiscard]] double use() const;
};

/// `shape.microbatches` times the same `runs`, at most shape.in_flight() of them begun and
/// unfinished. Each rank does one run at a time, chosen as runs_before() says among those that have
/// come and that OpenMicrobatches admits; where there is none, deferred work, the lowest
/// microbatch's first. Messages do not slow each other down. O(microbatches * runs * in_flight)
/// time.
[[nodiscard]] Simulation simulate_schedule(std::span<const Run> runs, const ScheduleShape& shape,
                                           int ranks);

}  // namespace smp::schedule
