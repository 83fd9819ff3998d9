// SPDX-License-Identifier: Apache-2.0
// The types of tensors that kernels know.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "smp_runtime/cuda/launch.h"

namespace smp::cuda {

/// Nothing for a type that kernels do not know.
inline std::optional<NumberType> number_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return NumberType::kFloat;
    case at::kDouble:
      return NumberType::kDouble;
    case at::kHalf:
      return NumberType::kHalf;
    case at::kBFloat16:
      return NumberType::kBFloat16;
    default:
      return std::nullopt;
  }
}

/// The type with which a kernel takes `tensor`; nothing where none does: on the CPU, in a build
/// without GPU code, for types that kernels do not know.
inline std::optional<NumberType> kernel_type(const at::Tensor& tensor) {
  if (!kBuilt || !tensor.is_cuda() || tensor.numel() == 0) return std::nullopt;
  return number_type(tensor.scalar_type());
}

/// Calls `body` with a value of the type.
template <typename Body>
void with_cpu_type(NumberType type, const Body& body) {
  with_number<at::Half, at::BFloat16>(type, body);
}

}  // namespace smp::cuda
