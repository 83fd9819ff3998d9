// SPDX-License-Identifier: Apache-2.0
// The payload of the runtime's messages: tensors, by value; and what a receiver needs to allocate
// one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/transport/transport.h"

namespace smp::transport {

/// Tensors without gradient. A receiver owns their memory alone and finds them contiguous.
class TensorPayload : public Payload {
 public:
  explicit TensorPayload(std::vector<at::Tensor> values) : tensors(std::move(values)) {}
  [[nodiscard]] std::shared_ptr<Payload> copy() const override;
  [[nodiscard]] int64_t size_bytes() const override;

  std::vector<at::Tensor> tensors;
};

/// The tensors of a payload, for the calling thread and its stream; none for null. Throws
/// InternalError if it is of another type.
[[nodiscard]] std::vector<at::Tensor> take_tensors(std::shared_ptr<Payload> payload);

/// Type, shape and kind of device of a tensor, which travel as bytes.
struct TensorMeta {
  at::ScalarType type = at::kFloat;
  at::DeviceType device = at::kCPU;
  std::vector<int64_t> sizes;
};

/// Appends the meta of `tensor`.
void append_meta(std::string& bytes, const at::Tensor& tensor);

/// Reads one meta from the front of `bytes` and removes it there. Throws InternalError if the bytes
/// are not a meta.
[[nodiscard]] TensorMeta take_meta(std::string_view& bytes);

}  // namespace smp::transport
