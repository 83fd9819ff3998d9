// SPDX-License-Identifier: Apache-2.0
// Division of a kernel's work, so that the same code runs on a GPU and on the CPU.
//
// A kernel's body is a template over its lanes: a block of GPU threads (block_lanes.h), one lane on
// the CPU, or the threads of a test. C++17, without Torch and CUDA.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SMP_ON_BOTH __host__ __device__
#else
#define SMP_ON_BOTH
#endif

namespace smp::cuda {

/// The type in which a kernel computes with `T`.
template <typename T>
struct WideOf {
  using Type = float;
};
template <>
struct WideOf<double> {
  using Type = double;
};
template <typename T>
using Wide = typename WideOf<T>::Type;

/// Lane number first() of count() takes every count()th element from its own on. All lanes call the
/// same sums in the same order, and get the same results.
struct OneLane {
  SMP_ON_BOTH std::int64_t first() const { return 0; }
  SMP_ON_BOTH std::int64_t count() const { return 1; }
  template <typename T>
  SMP_ON_BOTH T sum(T value) const {
    return value;
  }
  template <typename T>
  SMP_ON_BOTH T largest(T value) const {
    return value;
  }
};

}  // namespace smp::cuda
