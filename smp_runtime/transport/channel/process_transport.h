// SPDX-License-Identifier: Apache-2.0
// A transport between processes: through shared memory to those of the same host, through libfabric
// to the others. Tensors of a GPU go to other GPUs by NCCL.
#pragma once

#include <chrono>
#include <memory>

#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/key_value_store.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {

class ProcessTransport : public Transport {
 public:
  struct Options {
    /// Tensors that were sent from a CUDA device arrive on this one of the process.
    int cuda_device = -1;
    Network network;
    /// Time that members wait for each other at the start, and for tensors between GPUs.
    std::chrono::milliseconds timeout{std::chrono::minutes(5)};
  };

  /// Rank `rank` of `size`, which find each other by `store`, for this call alone. Collective.
  /// Throws HostError if a member does not come, ConfigError if the hosts have no network in
  /// common.
  ProcessTransport(KeyValueStore& store, int rank, int size, const Options& options);
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
