// SPDX-License-Identifier: Apache-2.0
// One peer of a transport between processes: what waits to be sent to it, a thread that sends and
// one that receives.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/inbox.h"

namespace smp::transport {

class PeerQueue {
 public:
  struct Ends {
    int rank;
    int peer;
  };

  /// Puts arriving messages into `inbox`, which outlives the queue.
  PeerQueue(std::unique_ptr<MessageChannel> channel, Inbox& inbox, const Ends& ends);
  PeerQueue(const PeerQueue&) = delete;
  PeerQueue& operator=(const PeerQueue&) = delete;
  /// join() comes first.
  ~PeerQueue() = default;

  /// For the thread that made the message's tensors, under its stream. Sends in that thread what
  /// the channel takes at once, when nothing is queued before it. Throws HostError if the peer is
  /// lost.
  void push(Message message);

  /// Queues the FIN behind all messages.
  void close();
  /// Waits until the FIN is sent, or the deadline; then ends both threads.
  void join(Clock::time_point deadline);

 private:
  void send_all();
  void receive_all();
  void lose(std::string_view reason);
  void end_of_peer();

  const std::unique_ptr<MessageChannel> channel_;
  Inbox& inbox_;
  const Ends ends_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<Outgoing> queue_;
  std::string lost_;
  bool sending_ = false;  // the sender's thread has taken a message
  bool closing_ = false;
  bool sent_all_ = false;
  bool aborted_ = false;

  std::thread sender_;  // last: they start with the members above in place
  std::thread receiver_;
};

}  // namespace smp::transport
