// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/tile_launch.h"
#include "smp_runtime/tensor_parallel/fused_blocks_kernels.h"

namespace smp::tensor_parallel {
namespace {

template <int N, typename T>
__global__ void softmax(const __grid_constant__ SoftmaxShape shape, const T* scores, const T* bias,
                        T* result) {
  softmax_row<N>(cuda::BlockLanes(), shape, blockIdx.x, scores, bias, result);
}

template <GeluKind kKind, int N, typename T>
__global__ void bias_gelu(std::int64_t rows, std::int64_t width, const T* __restrict__ input,
                          const T* __restrict__ bias, T* __restrict__ result) {
  const cuda::Tile tile = cuda::own_tile<N>(rows, width);
  if (tile.column < width) bias_gelu_tile<kKind, N>(tile, input, bias, result);
}

template <GeluKind kKind, int N, typename T>
__global__ void __launch_bounds__(cuda::kStripThreads, cuda::kStripBlocks)
    slopes(std::int64_t rows, std::int64_t width, std::int64_t strips, const T* __restrict__ input,
           const T* __restrict__ bias, const T* __restrict__ gradient, T* __restrict__ back,
           cuda::Wide<T>* parts) {
  const cuda::Strip strip = cuda::own_strip<N>(rows, width, strips);
  if (strip.column >= width || strip.begin >= strip.end) return;
  bias_gelu_slopes_of_strip<kKind, N>(strip, input, bias, gradient, back,
                                      parts + strip.place(strip.number));
}

/// Calls `body` with the kind as a type.
template <typename Body>
void with_kind(GeluKind kind, const Body& body) {
  if (kind == GeluKind::kErf) {
    body(std::integral_constant<GeluKind, GeluKind::kErf>());
  } else {
    body(std::integral_constant<GeluKind, GeluKind::kTanh>());
  }
}

}  // namespace

void launch_softmax(cuda::NumberType type, const SoftmaxShape& shape, const void* scores,
                    const void* bias, void* result, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::with_pack<T>(
        shape.keys,
        [&](auto pack) {
          constexpr int kN = decltype(pack)::value;
          softmax<kN><<<static_cast<unsigned>(shape.rows), cuda::threads_for(shape.keys / kN), 0,
                        stream>>>(shape, static_cast<const T*>(scores), static_cast<const T*>(bias),
                                  static_cast<T*>(result));
        },
        scores, result);
  });
  cuda::check_launch("softmax");
}

void launch_bias_gelu(cuda::NumberType type, GeluKind kind, std::int64_t rows, std::int64_t width,
                      const void* input, const void* bias, void* result, cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::with_pack<T>(
        width,
        [&](auto pack) {
          constexpr int kN = decltype(pack)::value;
          const cuda::TileGrid grid = cuda::tile_grid(rows, width, kN);
          with_kind(kind, [&](auto which) {
            bias_gelu<decltype(which)::value, kN><<<grid.blocks, grid.threads, 0, stream>>>(
                rows, width, static_cast<const T*>(input), static_cast<const T*>(bias),
                static_cast<T*>(result));
          });
        },
        input, bias, result);
  });
  cuda::check_launch("bias_gelu");
}

void launch_bias_gelu_slopes(cuda::NumberType type, GeluKind kind, std::int64_t rows,
                             std::int64_t width, std::int64_t strips, const void* input,
                             const void* bias, const void* gradient, void* back, void* parts,
                             cuda::Stream stream) {
  cuda::with_type(type, [&](auto number) {
    using T = decltype(number);
    cuda::with_pack<T>(
        width,
        [&](auto pack) {
          constexpr int kN = decltype(pack)::value;
          const cuda::TileGrid grid = cuda::strip_grid(strips, width, kN);
          with_kind(kind, [&](auto which) {
            slopes<decltype(which)::value, kN><<<grid.blocks, grid.threads, 0, stream>>>(
                rows, width, strips, static_cast<const T*>(input), static_cast<const T*>(bias),
                static_cast<const T*>(gradient), static_cast<T*>(back),
                static_cast<cuda::Wide<T>*>(parts));
          });
        },
        input, bias, gradient, back);
  });
  cuda::check_launch("bias_gelu's gradient");
}

}  // namespace smp::tensor_parallel
