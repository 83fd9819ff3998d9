// SPDX-License-Identifier: Apache-2.0
// Type, shape and kind of device of a tensor as bytes, so that a receiver can allocate it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::transport {

struct TensorMeta {
  at::ScalarType type = at::kFloat;
  at::DeviceType device = at::kCPU;
  std::vector<int64_t> sizes;
};

[[nodiscard]] TensorMeta meta_of(const at::Tensor& tensor);

/// Appends the meta of `tensor`.
void append_meta(std::string& bytes, const at::Tensor& tensor);

/// Reads one meta from the front of `bytes` and removes it there. Throws InternalError if the bytes
/// are not a meta.
[[nodiscard]] TensorMeta take_meta(std::string_view& bytes);

}  // namespace smp::transport
