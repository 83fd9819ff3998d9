// SPDX-License-Identifier: Apache-2.0
// Limit on the forwards that a rank has begun and whose backwards are still to come, since these
// bound its activations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::schedule {

/// As many microbatches as ScheduleShape::in_flight_at() says, with the ranks that a microbatch was
/// on before for the number of the stage. Unbounded under kSimple, where all forwards come first.
/// Under kZeroBubble as much as ScheduleShape::memory allows: forwards count by the deferred work
/// that the backwards of earlier microbatches have left in their place, and there is room left for
/// those that older microbatches have still to begin here.
class OpenMicrobatches {
 public:
  OpenMicrobatches(const ScheduleShape& shape, int ranks) : shape_(shape), ranks_(ranks) {
    SMP_CHECK(shape.active_microbatches > 0 && ranks > 0, "{} microbatches active on {} ranks",
              shape.active_microbatches, ranks);
    shape_.microbatches = std::numeric_limits<int64_t>::max();
  }

  /// True if `microbatch` may begin a forward on this rank, after it was on `before` other ones.
  /// One that is not younger than all open ones always may: so no rank holds up the oldest one of a
  /// step, and the step goes on whatever way its microbatches take through the ranks.
  [[nodiscard]] bool admits(int64_t microbatch, int64_t before) const {
    if (open_.empty() || microbatch <= open_.begin()->first) return true;
    if (shape_.schedule == Schedule::kZeroBubble) return has_room(microbatch);
    return open_.contains(microbatch) ||
           static_cast<int64_t>(open_.size()) < shape_.in_flight_at(early_ ? 0 : before, ranks_);
  }

  /// True if a backward may run on this rank, where so much of the work that earlier ones have left
  /// keeps `recomputed` activations: less than a microbatch leaves here, or the memory's multiple
  /// of that. A job that recomputes has no room for those of all that are open. The rank can always
  /// do such work first.
  [[nodiscard]] bool admits_backward(int64_t recomputed) const {
    return recomputed < std::max(each(), shape_.share_of_memory(each()));
  }

  /// True if as many are open as keep a rank busy, after `before` other ones, until the first
  /// backward comes back to it; one more covers the way of the loss over the rank that computes it,
  /// but under kZeroBubble, where the last rank alone has nothing to do before that.
  [[nodiscard]] bool fill_the_pipeline(int64_t before) const {
    const int64_t wanted = ranks_ - (early_ ? 0 : before);
    const auto open = static_cast<int64_t>(open_.size());
    return shape_.schedule == Schedule::kZeroBubble ? wanted == 1 && open > 0 : open > wanted;
  }

  /// The microbatch has begun a forward, whose activations are kept: a call, or a run of the body.
  void begin(int64_t microbatch, bool is_body = false) {
    Forwards& forwards = open_[microbatch];
    forwards.body = forwards.body || is_body;
    ++forwards.begun;
    ++forwards.kept;
  }
  /// The backward of one has left so much `work`: the forwards end in the reverse of their order.
  void left(int64_t microbatch, int64_t work) {
    const auto found = open_.find(microbatch);
    if (found != open_.end()) found->second.left.push_back(work);
  }
  /// What one has left is done: its activations are no longer kept. A body keeps some until its
  /// end, since its backward need not have as many runs as its forward.
  void end(int64_t microbatch) {
    const auto found = open_.find(microbatch);
    if (found == open_.end()) return;
    Forwards& forwards = found->second;
    if (forwards.kept > 1) {
      --forwards.kept;
    } else if (!forwards.body) {
      close(microbatch);
    }
  }
  /// Nothing of the microbatch is kept any more.
  void close(int64_t microbatch) {
    const auto found = open_.find(microbatch);
    if (found == open_.end()) return;
    if (found->second.left.size() == found->second.begun) {
      expect(found->second.left, found->second.body);
    }
    open_.erase(found);
  }
  /// Microbatches return to this rank after others, and so stay open for as long as on an early
  /// one: from now on it counts as the first.
  void revisit() { early_ = true; }
  void clear() { open_.clear(); }

  /// Microbatches' backwards are going to leave so much work here, in their order.
  void expect(const std::vector<int64_t>& left, bool is_body) {
    if (std::reduce(left.begin(), left.end()) == 0) return;
    weights_.assign(left.rbegin(), left.rend());
    if (is_body) return;
    for (int64_t& weight : weights_) weight = std::max<int64_t>(weight, 1);
  }

  /// What all microbatches keep, as a multiple of what the first rank keeps under 1F1B.
  [[nodiscard]] double memory() const {
    int64_t kept = 0;
    for (const auto& [microbatch, forwards] : open_) kept += weight_of_first(forwards.kept);
    return static_cast<double>(kept) / static_cast<double>(ranks_ * each());
  }

 private:
  struct Forwards {
    size_t begun = 0;
    size_t kept = 0;  ///< the first ones
    bool body = false;
    std::vector<int64_t> left;  ///< work, by backward
  };

  /// Of a microbatch's forwards up to that one; as long as nothing is known of them, the first
  /// counts for all.
  [[nodiscard]] int64_t weight_of_first(size_t forwards) const {
    if (weights_.empty()) return forwards == 0 ? 0 : 1;
    const auto known = std::min(forwards, weights_.size());
    return std::reduce(weights_.begin(), weights_.begin() + static_cast<std::ptrdiff_t>(known));
  }

  /// Of all forwards of a microbatch.
  [[nodiscard]] int64_t each() const {
    return std::max<int64_t>(1, std::reduce(weights_.begin(), weights_.end()));
  }

  [[nodiscard]] bool has_room(int64_t microbatch) const {
    const auto mine = open_.find(microbatch);
    const size_t next = mine == open_.end() ? 0 : mine->second.begun;
    int64_t taken = weight_of_first(next + 1) - weight_of_first(next);
    for (const auto& [other, forwards] : open_) {
      taken += weight_of_first(forwards.kept);
      if (other < microbatch) taken += each() - weight_of_first(forwards.begun);
    }
    return taken <= std::max(each(), shape_.share_of_memory(ranks_ * each()));
  }

  ScheduleShape shape_;
  int ranks_;
  bool early_ = false;
  std::map<int64_t, Forwards> open_;
  std::vector<int64_t> weights_;  ///< of a microbatch's forwards, in order; empty: not known yet
};

/// Number of runs by which two consecutive calls of one rank may lie apart: the caller's own run is
/// between them.
inline constexpr int64_t kNextRun = 2;

}  // namespace smp::schedule
