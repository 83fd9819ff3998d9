// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/event_wait.h"

#include <chrono>
#include <thread>

#include "smp_runtime/core/error.h"

namespace smp::transport {

void await(const cuda::StreamEvent& event, const WaitLimit& limit,
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
