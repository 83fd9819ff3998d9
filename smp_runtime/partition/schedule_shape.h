// SPDX-License-Identifier: Apache-2.0
// How the microbatches of a step go through the pipeline, as far as costs depend on it.
#pragma once

#include <algorithm>

namespace smp::partition {

struct ScheduleShape {
  int microbatches = 1;
  int active_microbatches = 1;  ///< begun and not finished at one time
  bool simple = false;          ///< all forwards, then all backwards

  /// How many microbatches may be open at one time: `simple` opens all.
  [[nodiscard]] int open() const {
    return simple ? microbatches : std::min(microbatches, active_microbatches);
  }

  /// How many microbatches' activations stage `stage` of `stages` holds at its fullest. Each stage
  /// needs one less in flight than the one before it; by default that makes two more than 1F1B has.
  [[nodiscard]] int kept(int stage, int stages) const {
    if (simple) return microbatches;
    return std::clamp(std::max(active_microbatches, stages + 2) - stage, 1, open());
  }
};

}  // namespace smp::partition
