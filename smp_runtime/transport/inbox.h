// SPDX-License-Identifier: Apache-2.0
// The queue in which a transport keeps what has arrived, and the loss of a peer if there was one.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// Unbounded; senders never wait. All members are safe to call from several threads.
class Inbox {
 public:
  void push(Message message);

  /// Records that a peer is gone. The first loss is kept; take() throws it once the queue is empty.
  void fail(std::string reason);

  /// See Transport::receive.
  std::optional<Message> take(Clock::time_point deadline);

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  std::deque<Message> messages_;
  std::string failure_;
};

}  // namespace smp::transport
