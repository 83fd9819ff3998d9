// SPDX-License-Identifier: Apache-2.0
// Orders of work that a scheduler follows.
#include <algorithm>
#include <optional>
#include <utility>

#include "smp_runtime/pipeline/scheduler.h"

namespace smp::pipeline {

void Scheduler::follow(std::vector<PlannedWork> order, bool preferred) {
  order_.emplace(order.begin(), order.end());
  preferred_ = preferred;
  overruled_ = false;
}

bool Scheduler::order_is_wrong() const {
  if (!order_ || preferred_ || tasks_.empty()) return false;
  if (order_->empty() || ended_.contains(order_->front().microbatch)) return true;
  return std::ranges::any_of(runnable_, [&](const Task* task) {
    return std::ranges::find(*order_, task->key.microbatch, &PlannedWork::microbatch) ==
           order_->end();
  });
}

std::optional<Scheduler::Task*> Scheduler::next_in_order() const {
  for (const PlannedWork& work : *order_) {
    if (work.is_deferred) {
      if (deferred_ && !deferred_(work.microbatch).is_done()) return nullptr;
    } else {
      const auto found = std::ranges::find_if(
          runnable_, [&](const Task* task) { return task->key.microbatch == work.microbatch; });
      // Deferred work makes room for it: for a backward, and only that does.
      const bool may_be_full = preferred_ || !kept_.empty();
      if (found != runnable_.end()) {
        if (!may_be_full || admits(**found)) return *found;
        if ((*found)->key.phase == Phase::kBackward) return nullptr;
      }
    }
    if (!overruled_) break;
  }
  return std::nullopt;
}

void Scheduler::strike(const PlannedWork& work) {
  if (!order_) return;
  const auto found = std::ranges::find(*order_, work);
  if (found == order_->end()) return;
  order_->erase(found);
  overruled_ = false;
}

bool Scheduler::may_defer() const {
  if (!order_ || !preferred_) return true;
  const auto next = next_in_order();
  return next ? *next == nullptr : overruled_ || order_->empty();
}

}  // namespace smp::pipeline
