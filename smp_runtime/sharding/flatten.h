// SPDX-License-Identifier: Apache-2.0
// Gradients of a unit laid end to end.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::sharding {

/// Elements [offset, offset + elements) of a flat tensor, which become the sum of the two tensors,
/// each of `elements` or undefined, which counts as zeros. `added` is of the flat tensor's type,
/// and may be the elements that are there already.
struct FlatPart {
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  at::Tensor source;
  at::Tensor added;
};

/// One kernel for all parts on a GPU, on its current stream.
void flatten(const at::Tensor& flat, const std::vector<FlatPart>& parts);

}  // namespace smp::sharding
