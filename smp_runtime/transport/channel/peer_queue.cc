// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/peer_queue.h"

#include <optional>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/transport/error_text.h"

namespace smp::transport {

PeerQueue::PeerQueue(std::unique_ptr<MessageChannel> channel, Inbox& inbox, const Ends& ends)
    : channel_(std::move(channel)),
      inbox_(inbox),
      ends_(ends),
      sender_(named_thread("smp-send", [this] { send_all(); })) {
  try {
    receiver_ = named_thread("smp-receive", [this] { receive_all(); });
  } catch (const HostError&) {
    join(Clock::now());
    throw;
  }
}

void PeerQueue::push(Message message) {
  Outgoing next = outgoing(std::move(message));
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.empty()) throw HostError(lost_);
    // Under the lock: messages keep their order, and this takes little time.
    const bool first = queue_.empty() && !sending_ && !closing_;
    if (first && channel_->send_at_once(next)) return;
    queue_.push_back(std::move(next));
  }
  changed_.notify_all();
}

void PeerQueue::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void PeerQueue::join(Clock::time_point deadline) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline, [this] { return sent_all_; });
    aborted_ = true;
  }
  channel_->end();
  changed_.notify_all();
  sender_.join();
  if (receiver_.joinable()) receiver_.join();
}

void PeerQueue::send_all() {
  try {
    while (true) {
      std::unique_lock lock(mutex_);
      sending_ = false;
      // No deadline: an idle link waits for its next message or the end.
      changed_.wait(lock, [this] { return !queue_.empty() || closing_ || aborted_; });
      if (aborted_) break;
      sending_ = true;
      if (queue_.empty()) {
        lock.unlock();
        channel_->send_fin();
        break;
      }
      const Outgoing next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      channel_->send(next);
    }
  } catch (const std::exception& error) {
    lose(error_text(error));
  }
  const std::lock_guard lock(mutex_);
  sent_all_ = true;
  changed_.notify_all();
}

void PeerQueue::receive_all() {
  try {
    while (std::optional<Message> message = channel_->receive()) {
      message->source = ends_.peer;
      inbox_.push(std::move(*message));
    }
    end_of_peer();
  } catch (const std::exception& error) {
    lose(error_text(error));
  }
}

void PeerQueue::end_of_peer() {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    text = lost_ = fmt::format(
        "rank {} of the pipeline group has left the job; all ranks call the step the same number "
        "of times: give them the same number of batches, for example by drop_last=True in the "
        "DataLoader",
        ends_.peer);
  }
  // Without the driver no step can go on, and none that the driver is in without the peer.
  if (ends_.peer == 0 || ends_.rank == 0) inbox_.fail(text);
}

void PeerQueue::lose(std::string_view reason) {
  std::string text;
  {
    const std::lock_guard lock(mutex_);
    if (aborted_ || !lost_.empty()) return;
    text = lost_ = fmt::format("rank {} of the pipeline group is lost: {}", ends_.peer, reason);
  }
  inbox_.fail(text);
  channel_->abort();  // what waits on a device for the peer would stop the rank's own work
}

}  // namespace smp::transport
