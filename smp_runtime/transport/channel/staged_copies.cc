// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/staged_copies.h"

#include <utility>

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/event_wait.h"

namespace smp::transport {

at::Tensor StagedCopies::to(const at::Tensor& tensor, const c10::Device& device,
                            const cuda::StreamEvent& made) {
  const c10::Device gpu = tensor.is_cpu() ? device : tensor.device();
  if (!stream_) stream_ = cuda::side_stream(gpu, cuda::Priority::kHigh);
  SMP_CHECK(stream_->device() == gpu, "messages have tensors of {} and {}", stream_->device().str(),
            gpu.str());
  made.block(*stream_);
  under_way_ = true;
  const c10::StreamGuard guard(*stream_);
  const at::Tensor target =
      device.is_cpu()
          ? empty_for(tensor.sizes(), tensor.scalar_type(), gpu.type())
          : at::empty(tensor.sizes(), at::TensorOptions(device).dtype(tensor.scalar_type()));
  target.copy_(tensor.detach(), /*non_blocking=*/true);
  return target;
}

void StagedCopies::wait() {
  if (!std::exchange(under_way_, false)) return;
  await(cuda::StreamEvent(*stream_),
        WaitLimit::after(settings_.timeout, "copying a message's tensors"), settings_.look_around);
}

at::Tensor empty_for(at::IntArrayRef sizes, at::ScalarType type, at::DeviceType target) {
  const bool pinned = target == at::kCUDA && at::hasCUDA();
  return at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned));
}

}  // namespace smp::transport
