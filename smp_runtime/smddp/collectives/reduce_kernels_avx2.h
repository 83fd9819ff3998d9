// SPDX-License-Identifier: Apache-2.0
// reduce() with AVX2 and F16C; only for CPUs that have both. See reduce_kernels.h.
#pragma once

#include "smp_runtime/core/element_type.h"
#include "smp_runtime/smddp/collectives/reduce_arrays.h"

namespace smp::collectives {

void reduce_avx2(ElementType type, ReduceOp op, const Arrays& arrays);

}  // namespace smp::collectives
