// SPDX-License-Identifier: Apache-2.0
// The way of messages to and from one other process.
#pragma once

#include <optional>

#include "smp_runtime/transport/tensor_message.h"

namespace smp::transport {

/// One thread at a time may send, one may receive; abort() may come from any. What fails, or was
/// aborted, throws.
class MessageWire {
 public:
  virtual ~MessageWire() = default;

  /// Returns once the message's memory is no longer needed.
  virtual void send(const PackedMessage& message) = 0;
  /// Sends if that takes no waiting and little time; else does nothing and returns false.
  virtual bool send_at_once(const PackedMessage& message) = 0;

  /// Waits for the next message, without a limit: an idle peer sends none. nullopt: the goodbye.
  virtual std::optional<ArrivingMessage> receive() = 0;

  /// Ends what waits and all that is called later.
  virtual void abort() = 0;
};

}  // namespace smp::transport
