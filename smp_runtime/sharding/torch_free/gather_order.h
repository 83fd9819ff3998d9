// SPDX-License-Identifier: Apache-2.0
// The order in which units are needed: learned in one pass, used and verified in the next.
//
// Prefetch must issue the same gathers in the same order on every rank, so nothing here depends on
// time: what is fetched ahead follows from the learned order and from counted elements alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace smp::sharding {

/// Success of fetching ahead in a pass.
struct Prefetched {
  std::int64_t expected = 0;  ///< needs that came as learned
  std::int64_t needs = 0;
  std::int64_t ahead = 0;  ///< gathers that were under way before they were needed
  std::int64_t gathers = 0;
};

/// Not thread-safe; units are numbers.
class GatherOrder {
 public:
  /// A pass begins: the units of the pass before become the order to expect.
  void begin() {
    if (!current_.empty()) learned_ = std::move(current_);
    current_.clear();
    position_ = 0;
    following_ = !learned_.empty();
  }

  /// `unit` is needed now. True if that was expected; from the first surprise on nothing is, until
  /// the next pass.
  bool note(int unit) {
    current_.push_back(unit);
    following_ = following_ && position_ < learned_.size() && learned_[position_] == unit;
    if (following_) ++position_;
    return following_;
  }

  /// The unit that is expected `ahead` needs after the last noted one (0: the next); nothing past
  /// the end or after a surprise.
  [[nodiscard]] std::optional<int> expected(std::size_t ahead) const {
    if (!following_ || position_ + ahead >= learned_.size()) return std::nullopt;
    return learned_[position_ + ahead];
  }

  struct Score {
    std::size_t expected = 0;
    std::size_t needs = 0;
  };
  /// Number of needs of the pass so far, and of those that were expected.
  [[nodiscard]] Score score() const { return {position_, current_.size()}; }

 private:
  std::vector<int> learned_;
  std::vector<int> current_;
  std::size_t position_ = 0;  ///< how many of learned_ were met
  bool following_ = false;
};

}  // namespace smp::sharding
