// SPDX-License-Identifier: Apache-2.0
// Order of a rank's runnable tasks: the whole scheduling policy, as one comparison, and the shape
// of a step's schedule, as far as costs depend on it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <tuple>

#include "smp_runtime/core/error.h"

namespace smp::schedule {

enum class Schedule {
  kSimple,       ///< all forwards of the step, then all backwards
  kInterleaved,  ///< forwards and backwards in turn, as there are any
};

/// Parses the parameter `pipeline`. Throws ConfigError for other values.
[[nodiscard]] inline Schedule parse_schedule(std::string_view name) {
  if (name == "simple") return Schedule::kSimple;
  // Without a backward there is nothing to take turns with.
  if (name == "interleaved" || name == "_only_forward") return Schedule::kInterleaved;
  throw ConfigError("pipeline=\"{}\"; expected interleaved, simple or _only_forward", name);
}

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
[[nodiscard]] inline bool runs_before(Schedule schedule, Phase last, const TaskKey& a,
                                      const TaskKey& b) {
  const bool in_turn = schedule == Schedule::kInterleaved;
  const Phase first = in_turn && last == Phase::kForward ? Phase::kBackward : Phase::kForward;
  const auto key = [&](const TaskKey& task) {
    const bool feeds = in_turn && task.depth == 0 && task.phase == Phase::kForward;
    return std::tuple(!feeds, task.phase != first, task.microbatch, -task.depth, task.arrival);
  };
  return key(a) < key(b);
}

struct ScheduleShape {
  int64_t microbatches = 1;
  int64_t active_microbatches = 1;  ///< begun and not finished at one time
  Schedule schedule = Schedule::kInterleaved;

  /// Number of microbatches that may be begun and unfinished. kSimple begins all: with fewer its
  /// first backward, which comes after all forwards, would never begin.
  [[nodiscard]] int64_t in_flight() const {
    return schedule == Schedule::kSimple ? microbatches
                                         : std::min(microbatches, active_microbatches);
  }

  /// Number of microbatches whose activations stage `stage` of `stages` holds at its fullest. Each
  /// stage needs one less in flight than the one before it; by default that makes two more than
  /// 1F1B has.
  [[nodiscard]] int64_t in_flight_at(int64_t stage, int64_t stages) const {
    if (schedule == Schedule::kSimple) return microbatches;
    return std::clamp<int64_t>(std::max(active_microbatches, stages + 2) - stage, 1, in_flight());
  }
};

}  // namespace smp::schedule
