// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/device_numbers.h"
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"

namespace smp::tensor_parallel {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kElementsPerBlock = 4 * kThreads;

unsigned blocks_for(std::int64_t elements) {
  return static_cast<unsigned>((elements + kElementsPerBlock - 1) / kElementsPerBlock);
}

__device__ std::int64_t own_begin() { return blockIdx.x * kElementsPerBlock; }
__device__ std::int64_t own_end(std::int64_t elements) {
  const std::int64_t end = own_begin() + kElementsPerBlock;
  return end < elements ? end : elements;
}

template <typename T>
__global__ void softmax(const __grid_constant__ SoftmaxShape shape, const T* scores, const T* bias,
                        T* result) {
  softmax_row(cuda::BlockLanes(), shape, blockIdx.x, scores, bias, result);
}

template <typename T>
__global__ void bias_gelu(GeluKind kind, std::int64_t elements, std::int64_t width, const T* input,
                          const T* bias, T* result) {
  bias_gelu_elements(cuda::BlockLanes(), kind, own_begin(), own_end(elements), width, input, bias,
                     result);
}

template <typename T>
__global__ void slopes(GeluKind kind, std::int64_t elements, std::int64_t width, const T* input,
                       const T* bias, const T* gradient, T* back) {
  bias_gelu_slopes(cuda::BlockLanes(), kind, own_begin(), own_end(elements), width, input, bias,
                   gradient, back);
}

}  // namespace

void launch_softmax(cuda::NumberType type, const SoftmaxShape& shape, const void* scores,
                    const void* bias, void* result, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    softmax<<<static_cast<unsigned>(shape.rows), cuda::threads_for(shape.keys), 0, stream>>>(
        shape, static_cast<const T*>(scores), static_cast<const T*>(bias), static_cast<T*>(result));
  });
  cuda::check_launch("softmax");
}

void launch_bias_gelu(cuda::NumberType type, GeluKind kind, std::int64_t elements,
                      std::int64_t width, const void* input, const void* bias, void* result,
                      cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    bias_gelu<<<blocks_for(elements), kThreads, 0, stream>>>(
        kind, elements, width, static_cast<const T*>(input), static_cast<const T*>(bias),
        static_cast<T*>(result));
  });
  cuda::check_launch("bias_gelu");
}

void launch_bias_gelu_slopes(cuda::NumberType type, GeluKind kind, std::int64_t elements,
                             std::int64_t width, const void* input, const void* bias,
                             const void* gradient, void* back, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    slopes<<<blocks_for(elements), kThreads, 0, stream>>>(
        kind, elements, width, static_cast<const T*>(input), static_cast<const T*>(bias),
        static_cast<const T*>(gradient), static_cast<T*>(back));
  });
  cuda::check_launch("bias_gelu's gradient");
}

}  // namespace smp::tensor_parallel
