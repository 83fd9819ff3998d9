// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/tensor_payload.h"

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
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

void append_meta(std::string& bytes, const at::Tensor& tensor) {
  append_plain(bytes, static_cast<int64_t>(tensor.scalar_type()));
  append_plain(bytes, static_cast<int64_t>(tensor.device().type()));
  append_plain(bytes, tensor.dim());
  append_plain_values<int64_t>(bytes, tensor.sizes());
}

TensorMeta take_meta(std::string_view& bytes) {
  const int64_t type = take_plain<int64_t>(bytes);
  SMP_CHECK(type >= 0 && type < static_cast<int64_t>(at::ScalarType::NumOptions), "tensor type {}",
            type);
  const auto device = static_cast<at::DeviceType>(take_plain<int64_t>(bytes));
  SMP_CHECK(device == at::kCPU || device == at::kCUDA, "a tensor on device type {}",
            static_cast<int>(device));
  const int64_t dims = take_plain<int64_t>(bytes);
  SMP_CHECK(dims >= 0, "a tensor of {} dims", dims);
  return {.type = static_cast<at::ScalarType>(type),
          .device = device,
          .sizes = take_plain_values<int64_t>(bytes, static_cast<size_t>(dims))};
}

}  // namespace smp::transport
