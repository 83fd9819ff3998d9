// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/staged_copies.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {

at::Tensor StagedCopies::to(const at::Tensor& tensor, const c10::Device& device) {
  const c10::Device gpu = tensor.is_cpu() ? device : tensor.device();
  if (!stream_) {
    stream_ = cuda::side_stream(gpu, cuda::Priority::kHigh);
    made_.block(*stream_);
  }
  SMP_CHECK(stream_->device() == gpu, "one message has tensors of {} and {}",
            stream_->device().str(), gpu.str());
  const c10::StreamGuard guard(*stream_);
  const at::Tensor target =
      device.is_cpu()
          ? empty_for(tensor.sizes(), tensor.scalar_type(), gpu.type())
          : at::empty(tensor.sizes(), at::TensorOptions(device).dtype(tensor.scalar_type()));
  target.copy_(tensor.detach(), /*non_blocking=*/true);
  return target;
}

void StagedCopies::wait() const {
  if (stream_) cuda::StreamEvent(*stream_).synchronize();
}

at::Tensor empty_for(at::IntArrayRef sizes, at::ScalarType type, at::DeviceType target) {
  const bool pinned = target == at::kCUDA && at::hasCUDA();
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned));
}

}  // namespace smp::transport
