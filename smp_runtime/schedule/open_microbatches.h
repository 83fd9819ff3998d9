// SPDX-License-Identifier: Apache-2.0
// Limit on the microbatches that a rank has begun and whose backwards are still to come, since
// these bound its activations.
#pragma once

#include <cstdint>
#include <limits>
#include <set>

#include "smp_runtime/core/error.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::schedule {

/// As many as ScheduleShape::in_flight_at() says, with the ranks that a microbatch was on before
/// for the number of the stage. Unbounded under kSimple, where all forwards come first.
class OpenMicrobatches {
 public:
  OpenMicrobatches(Schedule schedule, int64_t active, int ranks)
      : shape_{.microbatches = std::numeric_limits<int64_t>::max(),
               .active_microbatches = active,
               .schedule = schedule},
        ranks_(ranks) {
    SMP_CHECK(active > 0 && ranks > 0, "{} microbatches active on {} ranks", active, ranks);
  }

  /// True if `microbatch` may begin on this rank, after `before` other ones. A microbatch older
  /// than all open ones always may: so no rank holds up the oldest one of a step, and the step goes
  /// on whatever way its microbatches take through the ranks.
  [[nodiscard]] bool admits(int64_t microbatch, int64_t before) const {
    if (open_.empty() || microbatch < *open_.begin()) return true;
    return static_cast<int64_t>(open_.size()) < shape_.in_flight_at(early_ ? 0 : before, ranks_);
  }

  /// True if as many are open as keep a rank busy, after `before` other ones, until the first
  /// backward comes back to it; one more covers the way of the loss over the rank that computes it.
  [[nodiscard]] bool fill_the_pipeline(int64_t before) const {
    return static_cast<int64_t>(open_.size()) > ranks_ - (early_ ? 0 : before);
  }

  void open(int64_t microbatch) { open_.insert(microbatch); }
  void close(int64_t microbatch) { open_.erase(microbatch); }
  /// Microbatches return to this rank after others, and so stay open for as long as on an early
  /// one: from now on it counts as the first.
  void revisit() { early_ = true; }
  void clear() { open_.clear(); }

 private:
  ScheduleShape shape_;
  int ranks_;
  bool early_ = false;
  std::set<int64_t> open_;
};

/// Number of runs by which two consecutive calls of one rank may lie apart: the caller's own run is
/// between them.
inline constexpr int64_t kNextRun = 2;

}  // namespace smp::schedule
