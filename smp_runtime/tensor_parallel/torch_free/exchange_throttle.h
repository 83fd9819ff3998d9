// SPDX-License-Identifier: Apache-2.0
// Limit on the exchanges of tensor parallelism that a rank has under way.
#pragma once

#include <deque>
#include <functional>

namespace smp::tensor_parallel {

/// A GPU takes exchanges faster than it makes them, and memory of all that are queued is held. So
/// the oldest are waited for where there are more than a limit. Not thread-safe.
class ExchangeThrottle {
 public:
  /// Blocks the CPU until an exchange is over.
  using Wait = std::function<void()>;

  static constexpr int kUnlimited = -1;

  /// `limit` is at least 1, or kUnlimited. Throws ConfigError, naming it, for others.
  explicit ExchangeThrottle(int limit);

  /// True if there is a limit: exchanges have to be announced then.
  [[nodiscard]] bool limits() const { return limit_ != kUnlimited; }
  /// Before an exchange is started: waits for the oldest ones until there is room for it.
  void make_room();
  /// An exchange was started.
  void add(Wait wait);

 private:
  const int limit_;
  std::deque<Wait> under_way_;  ///< oldest first
};

}  // namespace smp::tensor_parallel
