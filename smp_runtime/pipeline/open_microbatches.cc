// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/open_microbatches.h"

#include <algorithm>

namespace smp::pipeline {

OpenMicrobatches::OpenMicrobatches(Schedule schedule, int64_t active, int ranks)
    : active_(schedule == Schedule::kSimple ? 0 : active),
      needed_(std::max<int64_t>(active, ranks + 2)) {}

bool OpenMicrobatches::admits(int64_t microbatch, int64_t before) const {
  if (active_ == 0 || open_.empty() || microbatch < *open_.begin()) return true;
  const int64_t limit = std::clamp<int64_t>(needed_ - before, 1, active_);
  return static_cast<int64_t>(open_.size()) < limit;
}

}  // namespace smp::pipeline
