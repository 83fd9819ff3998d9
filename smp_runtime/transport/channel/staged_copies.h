// SPDX-License-Identifier: Apache-2.0
// Tensors on their way between a device and pinned memory, beside what the device computes.
#pragma once

#include <chrono>
#include <functional>
#include <optional>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>

#include "smp_runtime/cuda/stream_event.h"

namespace smp::transport {

/// Copies for the messages of one thread, one message after the other. They go on a stream of their
/// own: on the one that computes they would wait for all that it was given, and it for them. It is
/// one for all messages, since the allocator keeps freed memory for the stream that it was for.
class StagedCopies {
 public:
  struct Settings {
    std::chrono::milliseconds timeout = std::chrono::minutes(30);  ///< of wait()
    std::function<void()> look_around = [] {};  ///< called while it waits; may throw
  };

  StagedCopies() : StagedCopies(Settings()) {}
  explicit StagedCopies(Settings settings) : settings_(std::move(settings)) {}

  /// A contiguous copy of `tensor` on `device`; one of the two is the CPU. On the CPU it is in
  /// pinned memory. Nothing is read before `made`; the copy is complete after wait(). All tensors
  /// are of one device.
  [[nodiscard]] at::Tensor to(const at::Tensor& tensor, const c10::Device& device,
                              const cuda::StreamEvent& made = {});
  /// Until all copies are complete. Throws HostError when the timeout passes first, and c10::Error
  /// once the device has failed.
  void wait();

 private:
  const Settings settings_;
  std::optional<c10::Stream> stream_;  ///< of the first copy's device
  bool under_way_ = false;
};

/// Memory of the CPU into which a tensor is received that belongs on a device of type `target`.
[[nodiscard]] at::Tensor empty_for(at::IntArrayRef sizes, at::ScalarType type,
                                   at::DeviceType target);

}  // namespace smp::transport
