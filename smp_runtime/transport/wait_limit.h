// SPDX-License-Identifier: Apache-2.0
// Limit of a wait between ranks, of which every such wait takes one: its deadline and its purpose.
#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>

#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// Longest timeout, a century, which clocks can still count; a longer one is cut to it.
inline constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365 * 100);

struct WaitLimit {
  Deadline deadline;
  std::string operation;                ///< for the message, e.g. "all_reduce"
  std::chrono::milliseconds timeout{};  ///< what the deadline was made of, for the message
  /// Called now and then, in the thread that waits; what it throws ends the wait. Empty for none.
  std::function<void()> look_around{};

  void look() const {
    if (look_around) look_around();
  }

  static WaitLimit after(std::chrono::milliseconds timeout, std::string operation) {
    return {.deadline = Clock::now() + std::min(timeout, kLongestTimeout),
            .operation = std::move(operation),
            .timeout = timeout};
  }
};

}  // namespace smp::transport
