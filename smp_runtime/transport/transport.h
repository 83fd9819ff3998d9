// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks of a pipeline group.
//
// A message is bytes plus an opaque payload. Schedulers see both as they are, so that they can be
// tested without Torch; transports between processes know one payload, TensorPayload.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "smp_runtime/core/deadline.h"

namespace smp::transport {

/// Data that travel beside the bytes of a message.
class Payload {
 public:
  virtual ~Payload() = default;
  /// A copy that shares no memory with this one: what another process would have received.
  [[nodiscard]] virtual std::shared_ptr<Payload> copy() const = 0;
  /// Bytes that it holds, for reports.
  [[nodiscard]] virtual int64_t size_bytes() const = 0;
};

struct Message {
  int source = -1;  ///< filled in by the receiving transport
  std::string bytes;
  std::shared_ptr<Payload> payload;  ///< may be null
};

/// One rank's end of a group of `size` ranks, numbered from 0.
///
/// Messages of one (source, destination) pair arrive complete and in the order of their sends;
/// nothing is promised between pairs. All members may be called from several threads.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Queues a message and returns at once; the payload must not be changed afterwards.
  /// Throws HostError if the destination is known to be lost.
  virtual void send(int destination, Message message) = 0;

  /// The next message of any peer, or nullopt when `deadline` passes first; a deadline that has
  /// passed polls. Throws HostError, naming the peer, once a peer is lost and its messages are
  /// read.
  virtual std::optional<Message> receive(Deadline deadline) = 0;
};

}  // namespace smp::transport
