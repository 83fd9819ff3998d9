// SPDX-License-Identifier: Apache-2.0
// Cuts a row of units into contiguous intervals, one for each stage, so that the costliest is as
// cheap as possible. Exact, with the cost of what crosses the cuts and with limits.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {

/// Interval `k` may not exceed `most`: the sum over its units of fixed + kept × times[k]. With
/// `times` empty, or `kept`, the second term is 0. Memory has both: state, and activations of as
/// many microbatches as the stage holds.
struct Limit {
  std::vector<std::int64_t> fixed;
  std::vector<std::int64_t> kept;
  std::vector<std::int64_t> times;
  std::int64_t most = 0;
};

struct IntervalProblem {
  std::vector<Cost> weights;
  /// Cost of a cut before each unit for the intervals on both sides of it; weights.size() + 1
  /// entries, 0 at both ends. Empty: nothing.
  std::vector<Cost> cuts;
  std::vector<Limit> limits;
};

struct Intervals {
  std::vector<int> ends;  ///< of each interval, ascending; the last is the number of units
  Cost worst = 0;         ///< the costliest interval: its weights and both its cuts

  bool operator==(const Intervals&) const = default;
};

/// The least `worst` for `count` non-empty intervals, by bisection on the answer; each question is
/// one pass of dynamic programming with a sliding maximum over the possible starts. Among solutions
/// as good the one whose cuts, from the last on, lie closest to an even split. None if the limits
/// leave none. Requires 1 <= count <= weights.size(). O(count × size × log(cost)) at worst; what
/// neither the left nor the right part can reach within the answer is skipped.
std::optional<Intervals> solve_intervals(const IntervalProblem& problem, int count);

/// A solution with `worst` at most `answer`, chosen alike; none if there is none.
std::optional<Intervals> intervals_within(const IntervalProblem& problem, int count, Cost answer);

}  // namespace smp::partition
