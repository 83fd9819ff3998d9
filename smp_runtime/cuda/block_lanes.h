// SPDX-License-Identifier: Apache-2.0
// The threads of a block as lanes; for .cu files.
#pragma once

#include <cstdint>

namespace smp::cuda {

/// For one-dimensional blocks of whole warps. Sums are made in one order: runs repeat.
class BlockLanes {
 public:
  __device__ std::int64_t first() const { return threadIdx.x; }
  __device__ std::int64_t count() const { return blockDim.x; }

  template <typename T>
  __device__ T sum(T value) const {
    return joined(value, [](T left, T right) { return left + right; });
  }
  template <typename T>
  __device__ T largest(T value) const {
    // As torch: what is no number is the largest.
    return joined(value,
                  [](T left, T right) { return left > right || left != left ? left : right; });
  }

 private:
  template <typename T, typename Join>
  __device__ T joined(T value, Join join) const {
    __shared__ T parts[kWarpSize];
    for (int apart = kWarpSize / 2; apart > 0; apart /= 2) {
      value = join(value, __shfl_xor_sync(~0U, value, apart));
    }
    __syncthreads();  // all have read the parts of the time before
    if (threadIdx.x % kWarpSize == 0) parts[threadIdx.x / kWarpSize] = value;
    __syncthreads();
    value = parts[0];
    for (unsigned warp = 1; warp < blockDim.x / kWarpSize; ++warp) value = join(value, parts[warp]);
    return value;
  }

  static constexpr int kWarpSize = 32;
};

/// Number of threads that share a row of `width` elements.
inline unsigned threads_for(std::int64_t width) {
  if (width <= 128) return 32;
  return width <= 1024 ? 128 : 256;
}

/// The same for one short reading: the threads of a warp do not wait for others' sums.
inline unsigned threads_for_reading(std::int64_t width) {
  return width <= 1024 ? 32 : threads_for(width);
}

}  // namespace smp::cuda
