// SPDX-License-Identifier: Apache-2.0
// Functions of kernels whose results are rounded to T: for one of 16 bits a GPU's own instructions
// are exact enough, and a sixth of the work. C++17, without Torch and CUDA.
#pragma once

#include <cmath>

#include "smp_runtime/cuda/lanes.h"

namespace smp::cuda {

template <typename T>
SMP_ON_BOTH Wide<T> exp_for(Wide<T> x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2) {
    // As __expf, but for what it does for numbers below 2^-126, which round to nothing here.
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504F));
    return result;
  }
#endif
  return std::exp(x);
}

/// exp(value - top). `top` is the same for many: what it is multiplied by is computed once.
template <typename T>
SMP_ON_BOTH Wide<T> exp_below_for(Wide<T> value, Wide<T> top) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2) {
    float result;
    const float power = __fmaf_rn(value, 1.44269504F, -1.44269504F * top);
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(power));
    return result;
  }
#endif
  return std::exp(value - top);
}

/// 1 / x.
template <typename T>
SMP_ON_BOTH Wide<T> inverse_for(Wide<T> x) {
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == 2) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }
#endif
  return 1 / x;
}

/// Through one exponential where that is exact enough; at the ends 1 and -1.
template <typename T>
SMP_ON_BOTH Wide<T> tanh_for(Wide<T> x) {
  if constexpr (sizeof(T) == 2) {
    return 1 - 2 * inverse_for<T>(1 + exp_for<T>(2 * x));
  } else {
    return std::tanh(x);
  }
}

}  // namespace smp::cuda
