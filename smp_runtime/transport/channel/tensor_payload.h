// SPDX-License-Identifier: Apache-2.0
// The payload of the runtime's messages: tensors, by value.
#pragma once

#include <memory>
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

}  // namespace smp::transport
