// SPDX-License-Identifier: Apache-2.0
// Type and shape of a tensor as bytes, so that a receiver can allocate it.
#pragma once

#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

namespace smp::transport {

/// Appends type and sizes of `tensor`.
void append_meta(std::string& bytes, const at::Tensor& tensor);

/// Reads one meta from the front of `bytes`, removes it there, and allocates the tensor on the CPU.
/// Throws InternalError if the bytes are not a meta.
[[nodiscard]] at::Tensor allocate_from_meta(std::string_view& bytes);

}  // namespace smp::transport
