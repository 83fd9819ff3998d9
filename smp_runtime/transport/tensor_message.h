// SPDX-License-Identifier: Apache-2.0
// A message as it goes between processes: a frame of fixed size, the message's bytes with the metas
// of its tensors behind them, then the tensors' own bytes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/transport/tensor_meta.h"
#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// The lengths of what follows.
struct MessageFrame {
  uint64_t message_bytes = 0;
  uint64_t meta_bytes = 0;
  uint32_t tensors = 0;
  uint32_t goodbye = 0;  ///< 1: nothing follows, now or later

  [[nodiscard]] size_t head_bytes() const { return message_bytes + meta_bytes; }
};

/// Ready to be written.
struct PackedMessage {
  MessageFrame frame;
  std::string head;
  std::vector<at::Tensor> tensors;  ///< on the CPU, contiguous

  [[nodiscard]] size_t size_bytes() const;
};

/// Copies tensors to the CPU where they are not. Throws InternalError if the payload is no
/// TensorPayload.
[[nodiscard]] PackedMessage pack(const Message& message);
[[nodiscard]] PackedMessage goodbye();

/// A message whose frame and head are read; then its tensors, which are allocated, are to be read.
class ArrivingMessage {
 public:
  /// Throws InternalError if the metas are damaged.
  ArrivingMessage(const MessageFrame& frame, std::string head);

  [[nodiscard]] std::vector<Received>& tensors() { return tensors_; }
  /// Tensors that were sent from a CUDA device are put on `cuda_device`.
  [[nodiscard]] Message finish(int source, int cuda_device) &&;

 private:
  std::string bytes_;
  std::vector<Received> tensors_;
};

}  // namespace smp::transport
