// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/device_numbers.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"

namespace smp::tensor_parallel {
namespace {

using cuda::BlockLanes;
using cuda::Stream;
using cuda::Wide;

template <typename T>
__global__ void moments(std::int64_t width, const T* input, Wide<T>* result) {
  moments_of_row(BlockLanes(), blockIdx.x, width, input, result);
}

template <typename T>
__global__ void normalise(const __grid_constant__ NormalRows<T> rows, const T* bias, T* result) {
  normalise_row(BlockLanes(), rows, blockIdx.x, bias, result);
}

template <typename T>
__global__ void slope_sums(const __grid_constant__ NormalRows<T> rows, const T* gradient,
                           Wide<T>* sums) {
  slope_sums_of_row(BlockLanes(), rows, blockIdx.x, gradient, sums);
}

template <typename T>
__global__ void slopes(const __grid_constant__ NormalRows<T> rows, const T* gradient,
                       const Wide<T>* means, T* back) {
  slopes_of_row(BlockLanes(), rows, blockIdx.x, gradient, means, back);
}

template <typename T>
__global__ void column_slopes(const __grid_constant__ NormalRows<T> rows, std::int64_t count,
                              const T* gradient, Wide<T>* parts) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= rows.width) return;
  const std::int64_t split = blockIdx.y;
  slopes_of_column(rows, count * split / kRowSplits, count * (split + 1) / kRowSplits, column,
                   gradient, parts + split * rows.width, parts + (kRowSplits + split) * rows.width);
}

template <typename T>
__global__ void loss_parts(std::int64_t words, const T* scores, const std::int64_t* column,
                           const bool* mine, Wide<T>* parts) {
  loss_parts_of_row(BlockLanes(), blockIdx.x, words, scores, column, mine, parts);
}

template <typename T>
__global__ void loss_slopes(std::int64_t words, const T* scores, const std::int64_t* column,
                            const bool* mine, const Wide<T>* normaliser, const Wide<T>* gradient,
                            T* back) {
  loss_slopes_of_row(BlockLanes(), blockIdx.x, words, scores, column, mine, normaliser, gradient,
                     back);
}

template <typename T>
NormalRows<T> typed(const AnyNormalRows& rows) {
  return {rows.width, static_cast<const T*>(rows.input), static_cast<const T*>(rows.weight),
          static_cast<const Wide<T>*>(rows.mean), static_cast<const Wide<T>*>(rows.scale)};
}

unsigned blocks_of(std::int64_t rows) { return static_cast<unsigned>(rows); }

constexpr int kColumnThreads = 128;

}  // namespace

void launch_moments(cuda::NumberType type, std::int64_t rows, std::int64_t width, const void* input,
                    void* result, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    moments<<<blocks_of(rows), cuda::threads_for(width), 0, stream>>>(
        width, static_cast<const T*>(input), static_cast<Wide<T>*>(result));
  });
  cuda::check_launch("moments");
}

void launch_normalise(cuda::NumberType type, const AnyNormalRows& rows, const void* bias,
                      void* result, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    normalise<<<blocks_of(rows.rows), cuda::threads_for(rows.width), 0, stream>>>(
        typed<T>(rows), static_cast<const T*>(bias), static_cast<T*>(result));
  });
  cuda::check_launch("normalise");
}

void launch_slope_sums(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                       void* sums, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    slope_sums<<<blocks_of(rows.rows), cuda::threads_for(rows.width), 0, stream>>>(
        typed<T>(rows), static_cast<const T*>(gradient), static_cast<Wide<T>*>(sums));
  });
  cuda::check_launch("slope_sums");
}

void launch_slopes(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                   const void* means, void* back, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    slopes<<<blocks_of(rows.rows), cuda::threads_for(rows.width), 0, stream>>>(
        typed<T>(rows), static_cast<const T*>(gradient), static_cast<const Wide<T>*>(means),
        static_cast<T*>(back));
  });
  cuda::check_launch("slopes");
}

void launch_column_slopes(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                          void* parts, Stream stream) {
  const dim3 blocks(static_cast<unsigned>((rows.width + kColumnThreads - 1) / kColumnThreads),
                    static_cast<unsigned>(kRowSplits));
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    column_slopes<<<blocks, kColumnThreads, 0, stream>>>(
        typed<T>(rows), rows.rows, static_cast<const T*>(gradient), static_cast<Wide<T>*>(parts));
  });
  cuda::check_launch("column_slopes");
}

void launch_loss_parts(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                       const void* scores, const std::int64_t* column, const bool* mine,
                       void* parts, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    loss_parts<<<blocks_of(rows), cuda::threads_for(words), 0, stream>>>(
        words, static_cast<const T*>(scores), column, mine, static_cast<Wide<T>*>(parts));
  });
  cuda::check_launch("loss_parts");
}

void launch_loss_slopes(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                        const void* scores, const std::int64_t* column, const bool* mine,
                        const void* normaliser, const void* gradient, void* back, Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    loss_slopes<<<blocks_of(rows), cuda::threads_for(words), 0, stream>>>(
        words, static_cast<const T*>(scores), column, mine, static_cast<const Wide<T>*>(normaliser),
        static_cast<const Wide<T>*>(gradient), static_cast<T*>(back));
  });
  cuda::check_launch("loss_slopes");
}

}  // namespace smp::tensor_parallel
