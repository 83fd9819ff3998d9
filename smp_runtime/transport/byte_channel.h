// SPDX-License-Identifier: Apache-2.0
// Messages of bytes to and from one other rank, in their order.
//
// Beside a Link, whose receiver chooses by tags, because here it takes each message as it comes: a
// large one needs no rendezvous, each direction has a thread of its own, and a message wakes nobody
// but the thread that receives from its sender. Over a SharedMemoryLink the same round trip takes
// 2.5 times as long with 64 KiB and 1.15 times with 1 MiB.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// A message is a header, of a size that both ends know, and parts whose sizes the receiver knows
/// from what it has read of the message by then.
///
/// One thread at a time may send, one may receive; abort() may come from any. A call that fails, or
/// is aborted, throws HostError.
class ByteChannel {
 public:
  using Part = std::span<const std::byte>;
  using Room = std::span<std::byte>;
  using Owner = std::shared_ptr<void>;  ///< of the memory, which a network may use after an error

  virtual ~ByteChannel() = default;

  /// Sends the header and the parts. Returns once their memory is no longer needed.
  virtual void send(std::span<const Part> message, const Owner& owner) = 0;
  /// Sends if that takes no waiting and little time; else does nothing and returns false. What was
  /// sent may be read until the owner is released.
  virtual bool send_at_once(std::span<const Part> message, const Owner& owner) = 0;

  /// Waits for the next message, without a limit: an idle peer sends none.
  virtual void receive_header(Room header) = 0;
  /// Waits for the next parts of the message.
  virtual void receive(std::span<const Room> parts, const Owner& owner) = 0;

  /// Flow-control credit: permission to send what goes another way than the message that announced
  /// it. It travels beside the messages and in no order with them. The receiving thread gives it
  /// without waiting; the sending one awaits each.
  virtual void give_credit() = 0;
  virtual void await_credit(const WaitLimit& limit) = 0;

  /// Ends what waits and all that is called later.
  virtual void abort() = 0;

 protected:
  static size_t size_bytes(std::span<const Part> message) {
    size_t sum = 0;
    for (const Part& part : message) sum += part.size();
    return sum;
  }
};

}  // namespace smp::transport
