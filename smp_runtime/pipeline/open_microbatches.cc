// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/open_microbatches.h"

#include <algorithm>
#include <limits>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

constexpr int kAny = std::numeric_limits<int>::max();

int to_int(int64_t count) { return static_cast<int>(std::min<int64_t>(count, kAny)); }

}  // namespace

OpenMicrobatches::OpenMicrobatches(Schedule schedule, int64_t active, int ranks)
    : shape_{.microbatches = kAny,
             .active_microbatches = to_int(active),
             .simple = schedule == Schedule::kSimple},
      ranks_(ranks) {
  SMP_CHECK(active > 0 && ranks > 0, "{} microbatches active on {} ranks", active, ranks);
}

bool OpenMicrobatches::admits(int64_t microbatch, int64_t before) const {
  if (open_.empty() || microbatch < *open_.begin()) return true;
  return static_cast<int>(open_.size()) < shape_.kept(early_ ? 0 : to_int(before), ranks_);
}

}  // namespace smp::pipeline
