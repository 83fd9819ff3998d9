// SPDX-License-Identifier: Apache-2.0
// Deadlines of waits.
#pragma once

#include <algorithm>
#include <chrono>

namespace smp {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

/// A wait that only an end or a stop finishes.
inline constexpr Deadline kNever = Deadline::max();

/// Timeout for poll(): milliseconds that are left, at most a minute; 0 when the deadline has
/// passed, -1 for kNever.
inline int poll_timeout(Deadline deadline) {
  if (deadline == kNever) return -1;
  const auto left = deadline - Clock::now();
  if (left <= Clock::duration::zero()) return 0;
  const auto rounded = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::min<long long>(rounded, 60'000));
}

}  // namespace smp
