// SPDX-License-Identifier: Apache-2.0
// The two ends of a pair of rings, in one process or two.
#pragma once

#include <memory>

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/transport/shared_memory_channel.h"

namespace smp::transport {

struct RingPair {
  /// End 0 or 1, whose peer is taken for that process.
  [[nodiscard]] std::unique_ptr<SharedMemoryChannel> end(int number,
                                                         pid_t peer_process = getpid()) const {
    using Place = SharedMemoryChannel::Place;
    return std::make_unique<SharedMemoryChannel>(Place{memory[number]}, Place{memory[1 - number]},
                                                 peer_process);
  }

  static std::shared_ptr<SharedMemory> ring() {
    return std::make_shared<SharedMemory>(
        SharedMemory::create(SharedMemoryChannel::memory_bytes(1)));
  }

  const std::shared_ptr<SharedMemory> memory[2] = {ring(), ring()};  ///< from which each end reads
};

inline pid_t ended_process() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  return child;
}

}  // namespace smp::transport
