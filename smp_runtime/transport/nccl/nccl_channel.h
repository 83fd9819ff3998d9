// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU to and from one other rank's GPU, by NCCL, beside the messages that announce
// them.
//
// The announcement comes first. The receiver allocates, gives credit and gives NCCL its receives;
// with the credit the sender gives NCCL its sends. So a kernel that waits for its other half waits
// for no decision and no allocation of a host, only for a thread that is about to start it. Both
// threads wait until the tensors are there: the sender first until they are computed, so that
// announcements arrive in the order in which work can go on.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/byte_channel.h"
#include "smp_runtime/transport/nccl/nccl_communicator.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

/// For threads as a ByteChannel is. A call that fails throws HostError; then nothing waits on
/// the device any more. Both ends give contiguous tensors that fit; where all are empty, neither
/// calls.
class NcclChannel {
 public:
  struct Settings {
    c10::Device device;                 ///< where tensors arrive
    std::chrono::milliseconds timeout;  ///< for each tensor's part of the way
  };
  using CommunicatorPointer = std::unique_ptr<NcclCommunicator>;

  /// In either communicator rank 0 sends and rank 1 receives. Both are connected.
  NcclChannel(CommunicatorPointer outward, CommunicatorPointer inward, const Settings& settings);

  [[nodiscard]] at::DeviceType device_type() const { return settings_.device.type(); }

  /// Waits until the tensors to send are computed. The host waits, since a kernel of NCCL that
  /// waits takes a part of the GPU, here and there.
  void await_computed(const cuda::StreamEvent& made) const;
  /// Sends once the receiver has given its credit by `frames`, which brought it the announcement.
  void send(std::span<const at::Tensor> tensors, ByteChannel& frames);

  /// Memory of the device to receive into.
  [[nodiscard]] at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType type) const;
  /// Gives credit by `frames` and receives.
  void receive(std::span<const at::Tensor> tensors, ByteChannel& frames);

  /// Ends what waits and all that is called later.
  void abort();

 private:
  const CommunicatorPointer outward_;
  const CommunicatorPointer inward_;
  const Settings settings_;
  const c10::Stream send_stream_;
  const c10::Stream receive_stream_;
  std::atomic<bool> aborted_{false};
};

/// NCCL's channels of a process; they use the library, so it goes last.
struct NcclEnds {
  std::unique_ptr<NcclLibrary> library;                ///< null where no pair uses NCCL
  std::vector<std::unique_ptr<NcclChannel>> channels;  ///< by rank; null for other pairs
};

/// Connects those pairs that have a GPU on both sides. `cuda_device` is -1 without one. Collective,
/// whatever the devices are; throws HostError if a member does not come in time.
[[nodiscard]] NcclEnds connect_nccl(const StoreGather& group, int cuda_device);

}  // namespace smp::transport
