// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/schedule/open_microbatches.h"

#include <limits>

#include "smp_runtime/core/error.h"

namespace smp::schedule {

OpenMicrobatches::OpenMicrobatches(Schedule schedule, int64_t active, int ranks)
    : shape_{.microbatches = std::numeric_limits<int64_t>::max(),
             .active_microbatches = active,
             .schedule = schedule},
      ranks_(ranks) {
  SMP_CHECK(active > 0 && ranks > 0, "{} microbatches active on {} ranks", active, ranks);
}

bool OpenMicrobatches::admits(int64_t microbatch, int64_t before) const {
  if (open_.empty() || microbatch < *open_.begin()) return true;
  return static_cast<int64_t>(open_.size()) < shape_.in_flight_at(early_ ? 0 : before, ranks_);
}

}  // namespace smp::schedule
