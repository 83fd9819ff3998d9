// SPDX-License-Identifier: Apache-2.0
// Messages whose tensors of a GPU go from GPU to GPU by NCCL; all else goes over another channel.
//
// The frame comes first. The receiver allocates, gives credit and gives NCCL its receives; with the
// credit the sender gives NCCL its sends. So a kernel that waits for its other half waits for no
// decision and no allocation of a host, only for a thread that is about to start it. Both threads
// wait until the tensors are there: the sender first until they are computed, so that frames arrive
// in the order in which work can go on, and the receiver before it hands the message on.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/nccl/nccl_communicator.h"

namespace smp::transport {

class NcclChannel : public MessageChannel {
 public:
  struct Settings {
    c10::Device device;                 ///< where tensors arrive
    std::chrono::milliseconds timeout;  ///< for each tensor's part of the way
  };
  using CommunicatorPointer = std::unique_ptr<NcclCommunicator>;

  /// In either communicator rank 0 sends and rank 1 receives. Both are connected.
  NcclChannel(std::unique_ptr<MessageChannel> frames, CommunicatorPointer outward,
              CommunicatorPointer inward, const Settings& settings);

  /// Throw HostError when the other end does not take part in time; then nothing waits on the
  /// device any more.
  void send(const PackedMessage& message) override;
  /// Not for what goes apart.
  bool send_at_once(const PackedMessage& message) override;
  std::optional<ArrivingMessage> receive() override;

  void give_credit() override { frames_->give_credit(); }
  void await_credit(const WaitLimit& limit) override { frames_->await_credit(limit); }
  [[nodiscard]] Apart apart() const override { return settings_.device.type(); }
  void abort() override;

 private:
  const std::unique_ptr<MessageChannel> frames_;
  const CommunicatorPointer outward_;
  const CommunicatorPointer inward_;
  const Settings settings_;
  const c10::Stream send_stream_;
  const c10::Stream receive_stream_;
  std::atomic<bool> aborted_{false};
};

/// The operations for the bytes of contiguous tensors; empty ones take none.
[[nodiscard]] std::vector<NcclOperation> sends_of(std::span<const at::Tensor> tensors);
[[nodiscard]] std::vector<NcclOperation> receives_of(std::span<const at::Tensor> tensors);

}  // namespace smp::transport
