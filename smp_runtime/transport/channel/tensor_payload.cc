// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/tensor_payload.h"

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"

namespace smp::transport {

std::shared_ptr<Payload> TensorPayload::copy() const {
  std::vector<at::Tensor> copies;
  copies.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.detach().clone(at::MemoryFormat::Contiguous));
  }
  return std::make_shared<TensorPayload>(std::move(copies));
}

int64_t TensorPayload::size_bytes() const {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined()) sum += static_cast<int64_t>(tensor.nbytes());
  }
  return sum;
}

std::vector<at::Tensor> take_tensors(std::shared_ptr<Payload> payload) {
  if (!payload) return {};
  auto* tensors = dynamic_cast<TensorPayload*>(payload.get());
  SMP_CHECK(tensors != nullptr, "a payload that holds no tensors");
  // The tensors may have been received under another stream.
  for (const at::Tensor& tensor : tensors->tensors) {
    if (tensor.defined() && !tensor.is_cpu()) {
      cuda::note_use(tensor, cuda::current_stream(tensor.device()));
    }
  }
  return std::move(tensors->tensors);
}

}  // namespace smp::transport
