// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/tensor_payload.h"

#include <utility>

#include <fmt/ranges.h>

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
  // Torch packs elements of some of these, and gives them less memory than their size says.
  SMP_CHECK(!at::isQIntType(static_cast<at::ScalarType>(type)), "a quantized tensor, of type {}",
            type);
  const int64_t device = take_plain<int64_t>(bytes);
  SMP_CHECK(device == static_cast<int64_t>(at::kCPU) || device == static_cast<int64_t>(at::kCUDA),
            "a tensor on device type {}", device);
  const int64_t dims = take_plain<int64_t>(bytes);
  SMP_CHECK(dims >= 0, "a tensor of {} dims", dims);
  auto sizes = take_plain_values<int64_t>(bytes, static_cast<size_t>(dims));
  int64_t elements = 1;
  for (const int64_t size : sizes) {
    SMP_CHECK(size >= 0 && !__builtin_mul_overflow(elements, size, &elements),
              "a tensor of shape [{}]", fmt::join(sizes, ", "));
  }
  return {.type = static_cast<at::ScalarType>(type),
          .device = static_cast<at::DeviceType>(device),
          .sizes = std::move(sizes)};
}

}  // namespace smp::transport
