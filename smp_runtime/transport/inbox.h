// SPDX-License-Identifier: Apache-2.0
// The queue in which a transport keeps what has arrived, and the loss of a peer if there was one.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// Unbounded; senders never wait. All members are safe to call from several threads.
class Inbox {
 public:
  void push(Message message) {
    {
      const std::lock_guard lock(mutex_);
      messages_.push_back(std::move(message));
    }
    arrived_.notify_one();
  }

  /// Records that a peer is gone. The first loss is kept; take() throws it once the queue is empty.
  void fail(std::string reason) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = std::move(reason);
    }
    arrived_.notify_all();
  }

  /// See Transport::receive.
  std::optional<Message> take(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    arrived_.wait_until(lock, deadline, [&] { return !messages_.empty() || !failure_.empty(); });
    if (!messages_.empty()) {
      Message message = std::move(messages_.front());
      messages_.pop_front();
      return message;
    }
    if (!failure_.empty()) throw HostError(failure_);
    return std::nullopt;
  }

 private:
  std::mutex mutex_;  // guards what follows
  std::condition_variable arrived_;
  std::deque<Message> messages_;
  std::string failure_;
};

}  // namespace smp::transport
