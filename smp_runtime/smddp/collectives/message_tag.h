// SPDX-License-Identifier: Apache-2.0
// The tags of messages between hosts: everything that tells two messages of a group apart that may
// be on their way at once, because networks such as EFA keep no order.
#pragma once

#include <cstdint>

namespace smp::collectives {

enum class MessageKind : uint8_t { kMailboxes = 1, kArrival = 2, kDeparture = 3, kPair = 4 };

struct MessageTag {
  MessageKind kind{};
  uint64_t sequence = 0;  ///< of the collective
  uint64_t round = 0;
  uint64_t chunk = 0;
  int source = 0;  ///< host, or rank for kPair
};

/// Packs the low bits of each number: collectives follow each other, and rounds, too.
constexpr uint64_t message_tag(const MessageTag& message) {
  return static_cast<uint64_t>(message.kind) << 60 | (message.sequence & 0xfff) << 48 |
         (message.round & 0xffff) << 32 | (message.chunk & 0xffff) << 16 |
         (static_cast<uint64_t>(message.source) & 0xffff);
}

}  // namespace smp::collectives
