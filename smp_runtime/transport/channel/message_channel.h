// SPDX-License-Identifier: Apache-2.0
// The way of messages to and from one other process.
#pragma once

#include <optional>

#include "smp_runtime/transport/channel/tensor_message.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// One thread at a time may send, one may receive; abort() may come from any. What fails, or was
/// aborted, throws.
class MessageChannel {
 public:
  virtual ~MessageChannel() = default;

  /// Returns once the message's memory is no longer needed.
  virtual void send(const PackedMessage& message) = 0;
  /// Sends if that takes no waiting and little time; else does nothing and returns false.
  virtual bool send_at_once(const PackedMessage& message) = 0;

  /// Waits for the next message, without a limit: an idle peer sends none. nullopt: the FIN.
  virtual std::optional<ArrivingMessage> receive() = 0;

  /// Flow-control credit: permission to send the payload whose frame has arrived. It travels beside
  /// the messages and in no order with them. The receiving thread gives it without waiting; the
  /// sending one awaits each.
  virtual void give_credit() = 0;
  virtual void await_credit(const WaitLimit& limit) = 0;

  /// Type of the tensors that this channel takes apart from a message's frame.
  [[nodiscard]] virtual Apart apart() const { return std::nullopt; }

  /// Ends what waits and all that is called later.
  virtual void abort() = 0;
};

}  // namespace smp::transport
