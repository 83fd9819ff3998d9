// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/device_scope.h"

#include <c10/util/Exception.h>

namespace smp::smddp {

const StagingStreams::Pair& StagingStreams::of(const c10::Device& gpu) {
  const std::lock_guard lock(mutex_);
  const auto found = pairs_.find(gpu.index());
  if (found != pairs_.end()) return found->second;
  const Pair made{.down = cuda::side_stream(gpu, cuda::Priority::kHigh),
                  .up = cuda::side_stream(gpu, cuda::Priority::kHigh)};
  return pairs_.emplace(gpu.index(), made).first->second;
}

DeviceScope::DeviceScope(StagingStreams& streams, const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined() || !tensor.is_cuda()) continue;
    TORCH_CHECK_VALUE(!gpu_ || *gpu_ == tensor.device(), "smddp: one call got tensors of ",
                      gpu_ ? *gpu_ : tensor.device(), " and ", tensor.device());
    gpu_ = tensor.device();
  }
  if (!gpu_) return;
  const StagingStreams::Pair& pair = streams.of(*gpu_);
  down_ = pair.down;
  up_ = pair.up;
  cuda::StreamEvent::record(*gpu_).block(*down_);
  guard_.reset_stream(*down_);
}

cuda::StreamEvent DeviceScope::copied() const {
  return down_ ? cuda::StreamEvent(*down_) : cuda::StreamEvent();
}

}  // namespace smp::smddp
