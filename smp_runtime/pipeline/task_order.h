// SPDX-License-Identifier: Apache-2.0
// Which runnable task of a rank goes first: the whole scheduling policy, as one comparison.
#pragma once

#include <cstdint>

namespace smp::pipeline {

enum class Schedule {
  kSimple,       ///< all forwards of the step, then all backwards
  kInterleaved,  ///< backward work as soon as there is any
};

enum class Phase : uint8_t { kForward, kBackward };

struct TaskKey {
  int64_t microbatch = 0;
  Phase phase = Phase::kForward;
  int depth = 0;        ///< nesting of module calls; the body of the step has 0
  int64_t arrival = 0;  ///< order in which the rank learnt of the task
  int64_t visit = 0;    ///< how many runs its microbatch had before this one, on all ranks
};

/// Strict weak order: true if `a` is to run before `b`. Forward first under kSimple, backward first
/// under kInterleaved; then the lower microbatch, the deeper call (finish what is open), arrival.
[[nodiscard]] bool runs_before(Schedule schedule, const TaskKey& a, const TaskKey& b);

}  // namespace smp::pipeline
