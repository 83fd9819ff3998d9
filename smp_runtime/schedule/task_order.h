// SPDX-License-Identifier: Apache-2.0
// Order of a rank's runnable tasks: the whole scheduling policy, as one comparison.
#pragma once

#include <cstdint>
#include <string_view>

namespace smp::schedule {

enum class Schedule {
  kSimple,       ///< all forwards of the step, then all backwards
  kInterleaved,  ///< forwards and backwards in turn, as there are any
};

/// Parses the parameter `pipeline`. Throws ConfigError for other values.
[[nodiscard]] Schedule parse_schedule(std::string_view name);

enum class Phase : uint8_t { kForward, kBackward };

struct TaskKey {
  int64_t microbatch = 0;
  Phase phase = Phase::kForward;
  int depth = 0;        ///< nesting of module calls; the body of the step has 0
  int64_t arrival = 0;  ///< order in which the rank learnt of the task
  int64_t target = -1;  ///< what is called, for reports; the body of the step has -1
  int64_t run = 0;      ///< how many runs its microbatch had before this one, on all ranks
  int64_t ranks = 0;    ///< how many ranks its microbatch has been on, with this one once it runs
};

/// Strict weak order: true if `a` is to run before `b` on a rank whose last run was of phase
/// `last`.
///
/// kSimple: forward first. kInterleaved: the forward of a body first; it feeds the other ranks,
/// with a microbatch or with the gradient of its loss, and admission bounds how many are open. Then
/// the other phase than the last one: one forward, one backward (1F1B) on every rank keeps both
/// ends of the pipeline supplied, where backward first would hold up the last forwards of a step.
/// Then the lower microbatch, the deeper call (finish what is open), arrival.
[[nodiscard]] bool runs_before(Schedule schedule, Phase last, const TaskKey& a, const TaskKey& b);

}  // namespace smp::schedule
