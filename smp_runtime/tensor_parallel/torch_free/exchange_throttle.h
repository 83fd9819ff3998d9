// SPDX-License-Identifier: Apache-2.0
// Limit on the exchanges of tensor parallelism that a rank has under way.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::tensor_parallel {

/// A GPU takes exchanges faster than it makes them, and memory of all that are queued is held. So
/// the oldest are waited for where there are more than a limit. Not thread-safe.
class ExchangeThrottle {
 public:
  /// Blocks the CPU until an exchange is over.
  using Wait = std::function<void()>;

  static constexpr int kUnlimited = -1;

  /// `limit` is at least 1, or kUnlimited. Throws ConfigError, naming it, for others.
  explicit ExchangeThrottle(int limit) : limit_(limit) {
    if (limit < 1 && limit != kUnlimited) {
      throw ConfigError(
          "SMP_NCCL_THROTTLE_LIMIT is {}; expected how many exchanges of tensor parallelism may be "
          "under way, at least 1, or -1 for any number",
          limit);
    }
  }

  /// True if there is a limit: exchanges have to be announced then.
  [[nodiscard]] bool limits() const { return limit_ != kUnlimited; }
  /// Before an exchange is started: waits for the oldest ones until there is room for it.
  void make_room() {
    if (!limits()) return;
    while (under_way_.size() >= static_cast<std::size_t>(limit_)) {
      const Wait oldest = std::move(under_way_.front());
      under_way_.pop_front();
      oldest();
    }
  }
  /// An exchange was started.
  void add(Wait wait) {
    if (limits()) under_way_.push_back(std::move(wait));
  }

 private:
  const int limit_;
  std::deque<Wait> under_way_;  ///< oldest first
};

}  // namespace smp::tensor_parallel
