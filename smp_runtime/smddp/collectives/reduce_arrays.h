// SPDX-License-Identifier: Apache-2.0
// Arguments of one call of the loops of reduce().
#pragma once

#include <cstddef>
#include <cstdint>

#include "smp_runtime/core/element_type.h"

namespace smp::collectives {

/// Stages of a reduction: all of it at once, or first parts, over the ranks of a host, and then a
/// whole of such parts. See part_size_bytes().
enum class Stage : uint8_t { kWhole, kPart, kParts };

struct Arrays {
  const std::byte* const* sources;
  size_t source_count;
  std::byte* destination;
  size_t count;
  int divisor;
  Stage stage;
};

/// reduce() with AVX2 and F16C; only for CPUs that have both. See reduce_kernels.h.
void reduce_avx2(ElementType type, ReduceOp op, const Arrays& arrays);

}  // namespace smp::collectives
