// SPDX-License-Identifier: Apache-2.0
// Waits for an event of a device's stream in a thread of the CPU, with a limit.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// `look_around` is called now and then and may throw, which ends the wait. Throws HostError when
/// the limit passes first.
inline void await(const cuda::StreamEvent& event, const WaitLimit& limit,
                  const std::function<void()>& look_around) {
  constexpr std::chrono::microseconds kLookInterval{20};
  while (!event.query()) {
    look_around();
    limit.look();
    if (Clock::now() > limit.deadline) {
      throw HostError(
          "{}: the GPU has not done its part after {} ms; does what it computes wait for something "
          "itself?",
          limit.operation, limit.timeout.count());
    }
    std::this_thread::sleep_for(kLookInterval);
  }
}

}  // namespace smp::transport
