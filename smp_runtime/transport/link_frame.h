// SPDX-License-Identifier: Apache-2.0
// Frames that ranks of a host write into each other's memory, and the doorbell that tells of them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/transport/futex.h"

namespace smp::transport {

/// At the start of each rank's memory. Whoever has put something into one of its rings, or taken
/// something from a ring that it writes, rings it.
struct Doorbell {
  alignas(kCacheLineBytes) std::atomic<uint32_t> count;
  std::atomic<uint32_t> sleeps;

  void ring() {
    // In one order with the sleeper's flag and its last look: one of the two sees the other.
    count.fetch_add(1);
    if (sleeps.load() != 0) futex_wake(count);
  }
};

/// In front of each message, and a message by itself.
struct LinkFrame {
  enum class Kind : uint32_t {
    kHello,          ///< the writer's address; the first in each ring
    kShort,          ///< a message with its data
    kRequestToSend,  ///< of a long message
    kClearToSend,    ///< the receiver has memory for the data
    kData,           ///< the data of a long message
    kGone,           ///< they will not come
  };
  Kind kind{};
  uint32_t unused = 0;
  uint64_t tag = 0;
  uint64_t number = 0;  ///< of a request to send, by its sender
  uint64_t size = 0;    ///< of the message [bytes]

  [[nodiscard]] size_t body_bytes() const {
    return kind == Kind::kHello || kind == Kind::kShort || kind == Kind::kData ? size : 0;
  }
};

}  // namespace smp::transport
