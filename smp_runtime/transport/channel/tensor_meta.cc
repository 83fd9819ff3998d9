// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/tensor_meta.h"

#include <cstring>
#include <utility>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

int64_t take_number(std::string_view& bytes) {
  int64_t number = 0;
  SMP_CHECK(bytes.size() >= sizeof(number), "a tensor's meta ends early");
  std::memcpy(&number, bytes.data(), sizeof(number));
  bytes.remove_prefix(sizeof(number));
  return number;
}

void append_number(std::string& bytes, int64_t number) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  bytes.append(raw, sizeof(number));
}

}  // namespace

void append_meta(std::string& bytes, const at::Tensor& tensor) {
  append_number(bytes, static_cast<int64_t>(tensor.scalar_type()));
  append_number(bytes, static_cast<int64_t>(tensor.device().type()));
  append_number(bytes, tensor.dim());
  for (const int64_t size : tensor.sizes()) append_number(bytes, size);
}

TensorMeta meta_of(const at::Tensor& tensor) {
  return {.type = tensor.scalar_type(),
          .device = tensor.device().type(),
          .sizes = tensor.sizes().vec()};
}

TensorMeta take_meta(std::string_view& bytes) {
  const int64_t type = take_number(bytes);
  SMP_CHECK(type >= 0 && type < static_cast<int64_t>(at::ScalarType::NumOptions), "tensor type {}",
            type);
  const auto device = static_cast<at::DeviceType>(take_number(bytes));
  SMP_CHECK(device == at::kCPU || device == at::kCUDA, "a tensor on device type {}",
            static_cast<int>(device));
  const int64_t dims = take_number(bytes);
  SMP_CHECK(dims >= 0 && dims <= static_cast<int64_t>(bytes.size()), "a tensor of {} dims", dims);
  std::vector<int64_t> sizes(static_cast<size_t>(dims));
  for (int64_t& size : sizes) size = take_number(bytes);
  return {.type = static_cast<at::ScalarType>(type), .device = device, .sizes = std::move(sizes)};
}

}  // namespace smp::transport
