// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/inbox.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::transport {

void Inbox::push(Message message) {
  {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  arrived_.notify_one();
}

void Inbox::fail(std::string reason) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = std::move(reason);
  }
  arrived_.notify_all();
}

std::optional<Message> Inbox::take(Clock::time_point deadline) {
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

}  // namespace smp::transport
