// SPDX-License-Identifier: Apache-2.0
// A message as it goes between processes: a frame of fixed size, the message's bytes with the metas
// of its tensors behind them, then the tensors' own bytes. Tensors of a device may go apart from
// them, by NCCL.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/transport/byte_channel.h"
#include "smp_runtime/transport/channel/staged_copies.h"
#include "smp_runtime/transport/channel/tensor_payload.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// Tensors of this type of device go apart from the frame; none: all go with it, by the CPU.
using Apart = std::optional<at::DeviceType>;

/// The lengths of what follows, and the codes by which the receiver knows who sent it: zero where
/// nobody else can.
struct MessageFrame {
  static constexpr int16_t kNoDevice = -1;
  static constexpr uint64_t kMostHeadBytes = uint64_t{1} << 32;

  uint64_t message_bytes = 0;
  uint64_t meta_bytes = 0;
  uint32_t tensors = 0;
  uint16_t fin = 0;                  ///< 1: nothing follows, now or later
  int16_t apart_device = kNoDevice;  ///< at::DeviceType of the tensors that go apart
  Mac head_code{};
  Mac code{};  ///< of all the above, and the message's place among those of its pair of ranks

  /// Throws HostError if there are more than kMostHeadBytes.
  [[nodiscard]] size_t head_bytes() const;
};

/// A message that waits for its turn. Its tensors on a device are contiguous.
struct Outgoing {
  Message message;
  bool on_device = false;  ///< it has tensors that are not on the CPU
  cuda::StreamEvent made;  ///< where these tensors are ready
};

/// To be called by the thread that made the message, under the stream that made its tensors.
/// Throws InternalError if the payload is no TensorPayload.
[[nodiscard]] Outgoing outgoing(Message message);

/// Ready to be sent.
struct PackedMessage {
  MessageFrame frame;
  std::string head;
  std::vector<at::Tensor> tensors;  ///< with the frame: on the CPU, contiguous
  std::vector<at::Tensor> apart;    ///< on the device, contiguous
  cuda::StreamEvent made;           ///< where `apart` are ready

  /// The frame and all that goes with it.
  [[nodiscard]] std::vector<ByteChannel::Part> parts() const;
};

/// Copies tensors to the CPU, by `copies`, that are not there and do not go apart, which waits for
/// the device.
[[nodiscard]] PackedMessage pack(const Outgoing& outgoing, Apart apart, StagedCopies& copies);

/// A tensor to receive into.
struct Received {
  at::Tensor tensor;  ///< on the CPU; undefined as long as it comes apart
  TensorMeta meta;    ///< where it then belongs
};

/// A message whose frame and head are read; then its tensors are to be read. Those that are defined
/// come with the frame.
class ArrivingMessage {
 public:
  /// Throws InternalError if the metas are damaged.
  ArrivingMessage(const MessageFrame& frame, std::string head);

  [[nodiscard]] std::vector<Received>& tensors() { return tensors_; }
  /// Memory of the tensors that come with the frame.
  [[nodiscard]] std::vector<ByteChannel::Room> rooms() const;
  /// Tensors that were sent from a CUDA device are put on `cuda_device`, by `copies`.
  [[nodiscard]] Message finish(int cuda_device, StagedCopies& copies) &&;

 private:
  std::string bytes_;
  std::vector<Received> tensors_;
};

}  // namespace smp::transport
