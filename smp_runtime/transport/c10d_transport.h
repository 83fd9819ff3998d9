// SPDX-License-Identifier: Apache-2.0
// A transport between processes, over the point-to-point operations of a c10d group on the CPU
// (Gloo).
//
// Per peer: one thread that sends what is queued, one that receives. A message is a frame of fixed
// size, which holds small messages whole, then what did not fit, then the tensors. Frames, rests
// and tensors of a pair have a tag each; Gloo matches equal tags in order.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "smp_runtime/transport/transport.h"

namespace smp::transport {

class C10dTransport : public Transport {
 public:
  /// `group_name` is a registered c10d group whose CPU backend is Gloo, used by nobody else, with a
  /// timeout longer than the job: its receives are always pending, however long a rank is idle.
  /// Tensors that were sent from a CUDA device arrive on `cuda_device` of this process.
  /// Throws HostError if there is no such group.
  C10dTransport(const std::string& group_name, int cuda_device);
  /// Says goodbye to all peers and joins the threads: at most `kCloseTimeout`.
  ~C10dTransport() override;
  C10dTransport(const C10dTransport&) = delete;
  C10dTransport& operator=(const C10dTransport&) = delete;

  static constexpr std::chrono::seconds kCloseTimeout{5};

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  /// The payload must be a TensorPayload. Tensors travel through the CPU.
  void send(int destination, Message message) override;
  std::optional<Message> receive(Clock::time_point deadline) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::transport
