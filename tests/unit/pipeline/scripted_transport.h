// SPDX-License-Identifier: Apache-2.0
// A rank's end of a group whose other ranks do what a test says, and then leave: what they had sent
// still arrives, then their FIN.
#pragma once

#include <deque>
#include <optional>
#include <utility>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline::testing {

class ScriptedTransport : public transport::Transport {
 public:
  ScriptedTransport(int rank, int size) : rank_(rank), size_(size) {}

  /// `envelope` from `source`, behind what was delivered before.
  void deliver(int source, Envelope envelope) {
    messages_.push_back(message_of(source, std::move(envelope)));
  }
  /// Delivers while the rank waits for it, not before.
  void deliver_late(int source, Envelope envelope) {
    late_.push_back(message_of(source, std::move(envelope)));
  }
  /// The peers' FIN has come: sends are refused, and behind the last message is nothing to wait
  /// for.
  void leave() { left_ = true; }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void send(int destination, transport::Message /*message*/) override {
    if (left_) throw HostError("rank {} has left the job", destination);
  }

  std::optional<transport::Message> receive(Clock::time_point deadline) override {
    if (messages_.empty() && !late_.empty() && deadline > Clock::time_point::min()) {
      messages_.push_back(std::move(late_.front()));
      late_.pop_front();
    }
    if (messages_.empty()) {
      if (left_) throw HostError("all others have left the job");
      return std::nullopt;
    }
    transport::Message message = std::move(messages_.front());
    messages_.pop_front();
    return message;
  }

 private:
  static transport::Message message_of(int source, Envelope envelope) {
    transport::Message message = encode(std::move(envelope));
    message.source = source;
    return message;
  }

  const int rank_;
  const int size_;
  std::deque<transport::Message> messages_;
  std::deque<transport::Message> late_;
  bool left_ = false;
};

}  // namespace smp::pipeline::testing
