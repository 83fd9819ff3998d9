// SPDX-License-Identifier: Apache-2.0
// Ranks of several pipeline groups that meet at each module, as those of a tensor-parallel group do
// in its exchanges: all of them come, and for the same work, or it fails.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <tuple>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/scheduler.h"

namespace smp::pipeline::testing {

class SiblingMeeting {
 public:
  explicit SiblingMeeting(int members) : members_(members) {}

  /// Blocks until all members are here. Throws InternalError, in all of them, if one comes for
  /// other work, or does not come within a minute.
  void meet(int64_t microbatch, size_t module, Phase phase) {
    std::unique_lock lock(mutex_);
    const auto purpose = std::tuple(microbatch, module, phase);
    if (here_ == 0) purpose_ = purpose;
    if (purpose_ != purpose) failed_ = true;
    const int64_t meeting = meetings_;
    if (++here_ == members_ || failed_) {
      here_ = 0;
      ++meetings_;
      changed_.notify_all();
    }
    const bool over = changed_.wait_for(lock, std::chrono::minutes(1),
                                        [&] { return meetings_ != meeting || failed_; });
    if (failed_) throw InternalError("siblings met in module {} for different work", module);
    if (!over) throw InternalError("a sibling did not come to module {}", module);
  }

 private:
  const int members_;
  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::tuple<int64_t, size_t, Phase> purpose_;
  int here_ = 0;
  int64_t meetings_ = 0;
  bool failed_ = false;
};

}  // namespace smp::pipeline::testing
