// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/gather_order.h"

#include <utility>

namespace smp::sharding {

void GatherOrder::begin() {
  if (!current_.empty()) learned_ = std::move(current_);
  current_.clear();
  position_ = 0;
  following_ = !learned_.empty();
}

bool GatherOrder::note(int unit) {
  current_.push_back(unit);
  if (following_ && position_ < learned_.size() && learned_[position_] == unit) {
    ++position_;
    return true;
  }
  following_ = false;
  return false;
}

std::optional<int> GatherOrder::expected(std::size_t ahead) const {
  if (!following_ || position_ + ahead >= learned_.size()) return std::nullopt;
  return learned_[position_ + ahead];
}

}  // namespace smp::sharding
