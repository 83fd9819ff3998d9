// SPDX-License-Identifier: Apache-2.0
// How many microbatches a rank may have begun whose backwards are still to come: what bounds its
// activations.
#pragma once

#include <cstdint>
#include <set>

#include "smp_runtime/pipeline/task_order.h"

namespace smp::pipeline {

/// With `active` microbatches in flight in all, a rank that they reach after `before` others needs
/// as many fewer. For the default of stages + 2 that makes stages - before + 2 on each rank, two
/// more than 1F1B has there. Unbounded under kSimple, where all forwards come first.
class OpenMicrobatches {
 public:
  OpenMicrobatches(Schedule schedule, int64_t active, int ranks);

  /// Whether `microbatch` may begin on this rank, after `before` other ones. One that is older than
  /// all that are open always may: so the oldest of a step is held up nowhere, and the step goes on
  /// whatever way its microbatches take through the ranks.
  [[nodiscard]] bool admits(int64_t microbatch, int64_t before) const;

  void open(int64_t microbatch) { open_.insert(microbatch); }
  void close(int64_t microbatch) { open_.erase(microbatch); }
  void clear() { open_.clear(); }

 private:
  int64_t active_;  ///< 0: unbounded
  int64_t needed_;  ///< where microbatches begin
  std::set<int64_t> open_;
};

}  // namespace smp::pipeline
