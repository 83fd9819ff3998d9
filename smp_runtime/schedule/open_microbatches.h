// SPDX-License-Identifier: Apache-2.0
// How many microbatches a rank may have begun whose backwards are still to come: what bounds its
// activations.
#pragma once

#include <cstdint>
#include <set>

#include "smp_runtime/schedule/schedule_shape.h"

namespace smp::schedule {

/// As many as ScheduleShape::in_flight_at() says, with the ranks that a microbatch was on before
/// for the number of the stage. Unbounded under kSimple, where all forwards come first.
class OpenMicrobatches {
 public:
  OpenMicrobatches(Schedule schedule, int64_t active, int ranks);

  /// Whether `microbatch` may begin on this rank, after `before` other ones. One that is older than
  /// all that are open always may: so the oldest of a step is held up nowhere, and the step goes on
  /// whatever way its microbatches take through the ranks.
  [[nodiscard]] bool admits(int64_t microbatch, int64_t before) const;

  /// Whether as many are open as keep a rank busy, after `before` other ones, until the first
  /// backward comes back to it; one more covers the way of the loss over the rank that computes it.
  [[nodiscard]] bool fill_the_pipeline(int64_t before) const {
    return static_cast<int64_t>(open_.size()) > ranks_ - (early_ ? 0 : before);
  }

  void open(int64_t microbatch) { open_.insert(microbatch); }
  void close(int64_t microbatch) { open_.erase(microbatch); }
  /// Microbatches return to this rank after others, and so stay open for as long as on an early
  /// one: from now on it counts as the first.
  void come_back() { early_ = true; }
  void clear() { open_.clear(); }

 private:
  ScheduleShape shape_;
  int ranks_;
  bool early_ = false;
  std::set<int64_t> open_;
};

/// How many runs may lie between two calls of one rank that still follow each other: that of the
/// caller in between.
inline constexpr int64_t kNextRun = 2;

}  // namespace smp::schedule
