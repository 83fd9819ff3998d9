// SPDX-License-Identifier: Apache-2.0
// Tensors on their way between a device and pinned memory, beside what the device computes.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "smp_runtime/cuda/stream_event.h"

namespace smp::transport {

/// Copies of one message. They go on a stream of their own: on the one that computes they would
/// wait for all that it was given, and it for them.
class StagedCopies {
 public:
  /// Nothing is read before `made`.
  explicit StagedCopies(cuda::StreamEvent made = {}) : made_(std::move(made)) {}

  /// A contiguous copy of `tensor` on `device`; one of the two is the CPU. On the CPU it is in
  /// pinned memory. It is complete after wait().
  [[nodiscard]] at::Tensor to(const at::Tensor& tensor, const c10::Device& device);
  /// Until all copies are complete. Without a deadline: a device ends what it was given, or fails,
  /// which throws c10::Error.
  void wait() const;

 private:
  const cuda::StreamEvent made_;
  std::optional<c10::Stream> stream_;  ///< of the first copy
};

/// Memory of the CPU into which a tensor is received that belongs on a device of type `target`.
[[nodiscard]] at::Tensor empty_for(at::IntArrayRef sizes, at::ScalarType type,
                                   at::DeviceType target);

}  // namespace smp::transport
