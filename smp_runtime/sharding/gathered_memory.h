// SPDX-License-Identifier: Apache-2.0
// Memory of gathered units: given to a tensor's storage for as long as the unit is unsharded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

namespace smp::sharding {

/// The storage object of a tensor outlives its memory: views and tensors that autograd saved see
/// new content when memory is given again. On the CPU spare memory is kept for the next unit of its
/// size, at most two of each, since fresh pages cost more than a gather from the same host. On a
/// GPU Torch's allocator does so, which gives it to others, too, when the device is full.
class GatheredMemory {
 public:
  /// From now on large blocks of this process go back to the system when they are freed. glibc
  /// keeps them in its heap as soon as one was freed, where blocks that live longer pin what lies
  /// between: units and gradients come and go in sizes that make a heap many times what is in use.
  static void keep_heap_small();

  /// The tensor, which has none, gets memory for `elements`, with any content.
  void give(const at::Tensor& tensor, std::int64_t elements);
  /// The tensor's storage is empty from now on; reading it is undefined.
  void take_away(const at::Tensor& tensor);
  [[nodiscard]] std::int64_t spare_bytes() const;

 private:
  std::multimap<std::size_t, c10::DataPtr> spare_;
};

}  // namespace smp::sharding
