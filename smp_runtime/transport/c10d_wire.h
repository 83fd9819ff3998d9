// SPDX-License-Identifier: Apache-2.0
// Messages over the point-to-point operations of a c10d group on the CPU (Gloo).
//
// A frame of fixed size holds small heads whole; then comes what did not fit, then the tensors.
// Frames, rests and tensors have a tag each; Gloo matches equal tags of a pair in order.
#pragma once

#include <chrono>
#include <deque>
#include <mutex>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "smp_runtime/transport/message_wire.h"

namespace smp::transport {

class C10dWire : public MessageWire {
 public:
  /// `backend` outlives the wire, and no others use it to `peer`. Its timeout is longer than the
  /// job: a receive is always pending, however long the peer is idle.
  C10dWire(c10d::Backend& backend, int peer) : backend_(backend), peer_(peer) {}

  void send(const PackedMessage& message) override;
  bool send_at_once(const PackedMessage& message) override;
  std::optional<ArrivingMessage> receive() override;
  void give_credit() override;
  void await_credit(const WaitLimit& limit) override;
  void abort() override;

 private:
  using Work = c10::intrusive_ptr<c10d::Work>;

  void send_frame(const PackedMessage& message);
  void send_tensor(at::Tensor tensor, int tag);
  void receive_tensor(at::Tensor tensor, int tag);
  void wait_for(Work& pending, Work work, std::chrono::milliseconds timeout = kNoTimeout);

  c10d::Backend& backend_;
  const int peer_;
  std::deque<Work> credits_;  // of the receiving thread: on their way

  std::mutex mutex_;  // guards what follows
  Work pending_send_;
  Work pending_receive_;
  Work pending_credit_;
  bool aborted_ = false;
};

}  // namespace smp::transport
