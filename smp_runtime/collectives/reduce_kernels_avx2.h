// SPDX-License-Identifier: Apache-2.0
// reduce() with AVX2 and F16C; only for CPUs that have both. See reduce_kernels.h.
#pragma once

#include <cstddef>

#include "smp_runtime/core/element_type.h"

namespace smp::collectives {

void reduce_avx2(ElementType type, ReduceOp op, const std::byte* const* sources,
                 size_t source_count, std::byte* destination, size_t count, int divisor);

}  // namespace smp::collectives
