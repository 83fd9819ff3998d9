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
  kZeroBubble,   ///< the same, and gradients of parameters when a rank would wait
};

/// Parses the parameter `pipeline`. Throws ConfigError for other values.
[[nodiscard]] inline Schedule parse_schedule(std::string_view name) {
  if (name == "simple") return Schedule::kSimple;
  if (name == "zero_bubble") return Schedule::kZeroBubble;
  // Without a backward there is nothing to take turns with.
  if (name == "interleaved" || name == "_only_forward") return Schedule::kInterleaved;
  throw ConfigError("pipeline=\"{}\"; expected interleaved, zero_bubble, simple or _only_forward",
                    name);
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
/// Then the lower microbatch, the deeper call (finish what is open), arrival. kZeroBubble: before
/// these, of two forwards the one whose microbatch is nearer to its loss.
[[nodiscard]] inline bool runs_before(Schedule schedule, Phase last, const TaskKey& a,
                                      const TaskKey& b) {
  const bool in_turn = schedule != Schedule::kSimple;
  const Phase first = in_turn && last == Phase::kForward ? Phase::kBackward : Phase::kForward;
  const auto key = [&](const TaskKey& task) {
    const bool feeds = in_turn && task.depth == 0 && task.phase == Phase::kForward;
    const bool by_run = schedule == Schedule::kZeroBubble && task.phase == Phase::kForward;
    return std::tuple(!feeds, task.phase != first, by_run ? -task.run : 0, task.microbatch,
                      -task.depth, task.arrival);
  };
  return key(a) < key(b);
}

struct ScheduleShape {
  int64_t microbatches = 1;
  int64_t active_microbatches = 1;  ///< begun and not finished at one time
  Schedule schedule = Schedule::kInterleaved;
  /// Under kZeroBubble the activations that a rank may keep, as a multiple of those that the first
  /// rank keeps under 1F1B: its own ones of as many microbatches as there are ranks.
  double memory = 1;

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
    if (schedule == Schedule::kZeroBubble) {
      return std::clamp<int64_t>(share_of_memory(stages), 1, in_flight());
    }
    return std::clamp<int64_t>(std::max(active_microbatches, stages + 2) - stage, 1, in_flight());
  }

  /// `memory` times `whole`, without what rounding takes from a third of three.
  [[nodiscard]] int64_t share_of_memory(int64_t whole) const {
    return static_cast<int64_t>(memory * static_cast<double>(whole) + 1e-6);
  }
};

}  // namespace smp::schedule
