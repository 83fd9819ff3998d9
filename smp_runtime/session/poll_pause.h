// SPDX-License-Identifier: Apache-2.0
// Pause between two questions that a rank, which waits, asks the job's store.
#pragma once

#include <algorithm>
#include <chrono>

#include "smp_runtime/core/deadline.h"

namespace smp::session {

/// An eighth of the time that the rank has waited, from 50 us to 100 ms. In a job of many ranks
/// longer: a store answers some 100,000 questions a second, of all ranks together. A rank of 1,024
/// asks 110 times in a wait of a minute.
[[nodiscard]] inline Clock::duration poll_pause(Clock::duration waited, int ranks) {
  using std::chrono::microseconds;
  using std::chrono::milliseconds;
  const Clock::duration shortest = std::max(microseconds(50), ranks * microseconds(6));
  const Clock::duration longest = std::max(milliseconds(100), ranks * milliseconds(2));
  return std::clamp(waited / 8, shortest, longest);
}

}  // namespace smp::session
