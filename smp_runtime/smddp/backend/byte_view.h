// SPDX-License-Identifier: Apache-2.0
// Tensors as the bytes that collectives move.
#pragma once

#include <ATen/core/Tensor.h>

#include "smp_runtime/smddp/collectives/call_signature.h"
#include "smp_runtime/smddp/collectives/intra_node.h"

namespace smp::smddp {

/// Throws c10::Error, a ValueError or NotImplementedError in Python, for what is not a dense tensor
/// of the CPU or a GPU.
void check_tensor(const at::Tensor& tensor, const char* operation);

/// Header of a call to which this rank contributes `tensor`. Complex numbers are told as their
/// parts; a type that no reduction knows is told as bytes.
collectives::CallSignature header_of(const at::Tensor& tensor);

/// The tensor, contiguous and on the CPU. A copy from a GPU is on its way in the thread's stream.
at::Tensor on_cpu(const at::Tensor& tensor);

/// The memory of a contiguous tensor on the CPU.
collectives::ConstBytes bytes_in(const at::Tensor& tensor);
collectives::Bytes bytes_out(const at::Tensor& tensor);

/// A tensor that a collective writes: itself where it is contiguous and on the CPU, else a copy
/// that finish() puts back; to a GPU that goes in the thread's stream.
class StagingBuffer {
 public:
  /// `keeps_content`: the copy starts with what the tensor holds.
  StagingBuffer(at::Tensor target, bool keeps_content);
  [[nodiscard]] const at::Tensor& tensor() const { return staged_; }
  void finish() const;

 private:
  at::Tensor target_;
  at::Tensor staged_;
};

}  // namespace smp::smddp
