// SPDX-License-Identifier: Apache-2.0
// From a type's name to the type; for .cu files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "smp_runtime/cuda/number_type.h"

namespace smp::cuda {

/// Calls `body` with a value of the type.
template <typename Body>
void with_type(NumberType type, const Body& body) {
  with_number<__half, __nv_bfloat16>(type, body);
}

}  // namespace smp::cuda
