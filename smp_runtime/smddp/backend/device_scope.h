// SPDX-License-Identifier: Apache-2.0
// Tensors of a GPU in a call of the backend: which streams take them to pinned memory and back.
//
// What a call reads is copied behind what the caller's stream was given so far, on a stream of its
// own, while earlier calls are still under way. What it writes is copied back on another one, which
// the caller's stream waits for when the work is waited for. The host waits for the first kind, in
// the thread that runs the collective; nobody waits for the whole device.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/cuda/stream_event.h"

namespace smp::smddp {

/// Streams of a group, by GPU. Safe to call from several threads.
class StagingStreams {
 public:
  struct Pair {
    c10::Stream down;  ///< to pinned memory
    c10::Stream up;    ///< to the GPU
  };
  const Pair& of(const c10::Device& gpu);

 private:
  std::mutex mutex_;  // guards what follows
  std::map<int, Pair> pairs_;
};

/// Lives while a call's tensors are prepared: copies that are made meanwhile by the thread go on
/// the stream for them. Does nothing for tensors of the CPU.
class DeviceScope {
 public:
  /// Throws c10::Error, a ValueError in Python, for tensors of several GPUs.
  DeviceScope(StagingStreams& streams, const std::vector<at::Tensor>& tensors);

  [[nodiscard]] const std::optional<c10::Device>& gpu() const { return gpu_; }
  /// The stream on which results are written; none without a GPU.
  [[nodiscard]] const std::optional<c10::Stream>& up() const { return up_; }
  /// Behind all copies that were made so far.
  [[nodiscard]] cuda::StreamEvent copied() const;

 private:
  std::optional<c10::Device> gpu_;
  std::optional<c10::Stream> down_;
  std::optional<c10::Stream> up_;
  c10::OptionalStreamGuard guard_;
};

}  // namespace smp::smddp
