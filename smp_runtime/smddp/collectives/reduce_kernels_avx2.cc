// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2 -mf16c (CMakeLists.txt).
#include <immintrin.h>

#include "smp_runtime/smddp/collectives/reduce_kernels.h"
#include "smp_runtime/smddp/collectives/reduce_kernels_body.h"

namespace smp::collectives {

void reduce_avx2(ElementType type, ReduceOp op, const Arrays& arrays) {
  reduce_any(type, op, arrays);
}

}  // namespace smp::collectives
