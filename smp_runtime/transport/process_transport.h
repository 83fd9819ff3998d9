// SPDX-License-Identifier: Apache-2.0
// A transport between processes: through shared memory to those of the same host, over a c10d group
// (Gloo) to the others. Tensors of a GPU go to other GPUs by NCCL.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "smp_runtime/transport/transport.h"

namespace smp::transport {

class ProcessTransport : public Transport {
 public:
  struct Options {
    /// Tensors that were sent from a CUDA device arrive on this one of the process.
    int cuda_device = -1;
    /// How long members wait for each other at the start, and for what has been announced.
    std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  };

  /// `group_name` is a registered c10d group whose CPU backend is Gloo, used by nobody else, with a
  /// timeout longer than the job. Collective over it. Throws HostError if there is no such group
  /// or a member does not come.
  ProcessTransport(const std::string& group_name, const Options& options);
  /// Sends FIN to all peers and joins the threads: at most `kCloseTimeout`.
  ~ProcessTransport() override;
  ProcessTransport(const ProcessTransport&) = delete;
  ProcessTransport& operator=(const ProcessTransport&) = delete;

  static constexpr std::chrono::seconds kCloseTimeout{5};

  [[nodiscard]] int rank() const override;
  [[nodiscard]] int size() const override;
  /// The payload must be a TensorPayload. The calling thread's stream has been given all that makes
  /// its tensors. Where NCCL cannot take tensors of a GPU, they travel through the CPU.
  void send(int destination, Message message) override;
  std::optional<Message> receive(Clock::time_point deadline) override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace smp::transport
