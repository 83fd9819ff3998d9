// SPDX-License-Identifier: Apache-2.0
// Shape of a step's schedule, as far as costs depend on it.
#pragma once

#include <algorithm>
#include <cstdint>

#include "smp_runtime/schedule/task_order.h"

namespace smp::schedule {

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
