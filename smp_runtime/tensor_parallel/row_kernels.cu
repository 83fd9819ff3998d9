// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cuda/block_lanes.h"
#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/tile_launch.h"
#include "smp_runtime/tensor_parallel/row_kernels.h"

namespace smp::tensor_parallel {
namespace {

using cuda::BlockLanes;
using cuda::Stream;
using cuda::Wide;

template <int N, typename T>
__global__ void moments(std::int64_t width, const T* __restrict__ input, Wide<T>* result) {
  moments_of_row<N>(BlockLanes(), blockIdx.x, width, input, result);
}

template <int N, typename T>
__global__ void normalise(const __grid_constant__ NormalRows<T> rows, std::int64_t count,
                          const T* __restrict__ bias, T* __restrict__ result) {
  const cuda::Tile tile = cuda::own_tile<N>(count, rows.width);
  if (tile.column < rows.width) normalise_tile<N>(tile, rows, bias, result);
}

template <int N, typename T>
__global__ void slope_sums(const __grid_constant__ NormalRows<T> rows,
                           const T* __restrict__ gradient, Wide<T>* sums) {
  slope_sums_of_row<N>(BlockLanes(), rows, blockIdx.x, gradient, sums);
}

template <int N, typename T>
__global__ void __launch_bounds__(cuda::kStripThreads, cuda::kStripBlocks)
    slopes(const __grid_constant__ NormalRows<T> rows, std::int64_t count, std::int64_t strips,
           const T* __restrict__ gradient, const Wide<T>* means, T* __restrict__ back,
           Wide<T>* parts) {
  const cuda::Strip strip = cuda::own_strip<N>(count, rows.width, strips);
  if (strip.column >= rows.width || strip.begin >= strip.end) return;
  Wide<T>* const weight = parts + strip.place(strip.number);
  slopes_of_strip<N>(strip, rows, gradient, means, back, weight, weight + strips * rows.width);
}

template <int N, typename T>
__global__ void loss_parts(std::int64_t words, const T* __restrict__ scores,
                           const std::int64_t* column, const bool* mine, Wide<T>* parts) {
  loss_parts_of_row<N>(BlockLanes(), blockIdx.x, words, scores, column, mine, parts);
}

template <int N, typename T>
__global__ void loss_slopes(std::int64_t words, const T* __restrict__ scores,
                            const std::int64_t* column, const bool* mine, const Wide<T>* normaliser,
                            const Wide<T>* gradient, T* __restrict__ back) {
  loss_slopes_of_row<N>(BlockLanes(), blockIdx.x, words, scores, column, mine, normaliser, gradient,
                        back);
}

template <typename T>
NormalRows<T> typed(const AnyNormalRows& rows) {
  return {rows.width, static_cast<const T*>(rows.input), static_cast<const T*>(rows.weight),
          static_cast<const Wide<T>*>(rows.mean), static_cast<const Wide<T>*>(rows.scale)};
}

unsigned blocks_of(std::int64_t rows) { return static_cast<unsigned>(rows); }

/// Calls `body` with a number of the type and the elements of a pack, as types.
template <typename Body, typename... Places>
void with_types(cuda::NumberType type, std::int64_t width, const Body& body,
                const Places*... places) {
  cuda::with_type(type, [&](auto number) {
    cuda::with_pack<decltype(number)>(
        width, [&](auto pack) { body(number, pack); }, places...);
  });
}

}  // namespace

void launch_moments(cuda::NumberType type, std::int64_t rows, std::int64_t width, const void* input,
                    void* result, Stream stream) {
  with_types(
      type, width,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        moments<kN><<<blocks_of(rows), cuda::threads_for_reading(width / kN), 0, stream>>>(
            width, static_cast<const T*>(input), static_cast<Wide<T>*>(result));
      },
      input);
  cuda::check_launch("moments");
}

void launch_normalise(cuda::NumberType type, const AnyNormalRows& rows, const void* bias,
                      void* result, Stream stream) {
  with_types(
      type, rows.width,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        const cuda::TileGrid grid = cuda::tile_grid(rows.rows, rows.width, kN);
        normalise<kN><<<grid.blocks, grid.threads, 0, stream>>>(
            typed<T>(rows), rows.rows, static_cast<const T*>(bias), static_cast<T*>(result));
      },
      rows.input, rows.weight, bias, result);
  cuda::check_launch("normalise");
}

void launch_slope_sums(cuda::NumberType type, const AnyNormalRows& rows, const void* gradient,
                       void* sums, Stream stream) {
  with_types(
      type, rows.width,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        slope_sums<kN><<<blocks_of(rows.rows), cuda::threads_for(rows.width / kN), 0, stream>>>(
            typed<T>(rows), static_cast<const T*>(gradient), static_cast<Wide<T>*>(sums));
      },
      rows.input, rows.weight, gradient);
  cuda::check_launch("slope_sums");
}

void launch_slopes(cuda::NumberType type, const AnyNormalRows& rows, std::int64_t strips,
                   const void* gradient, const void* means, void* back, void* parts,
                   Stream stream) {
  with_types(
      type, rows.width,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        const cuda::TileGrid grid = cuda::strip_grid(strips, rows.width, kN);
        slopes<kN><<<grid.blocks, grid.threads, 0, stream>>>(
            typed<T>(rows), rows.rows, strips, static_cast<const T*>(gradient),
            static_cast<const Wide<T>*>(means), static_cast<T*>(back),
            static_cast<Wide<T>*>(parts));
      },
      rows.input, rows.weight, gradient, back);
  cuda::check_launch("slopes");
}

void launch_loss_parts(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                       const void* scores, const std::int64_t* column, const bool* mine,
                       void* parts, Stream stream) {
  with_types(
      type, words,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        loss_parts<kN><<<blocks_of(rows), cuda::threads_for(words / kN), 0, stream>>>(
            words, static_cast<const T*>(scores), column, mine, static_cast<Wide<T>*>(parts));
      },
      scores);
  cuda::check_launch("loss_parts");
}

void launch_loss_slopes(cuda::NumberType type, std::int64_t rows, std::int64_t words,
                        const void* scores, const std::int64_t* column, const bool* mine,
                        const void* normaliser, const void* gradient, void* back, Stream stream) {
  with_types(
      type, words,
      [&](auto number, auto pack) {
        using T = decltype(number);
        constexpr int kN = decltype(pack)::value;
        loss_slopes<kN><<<blocks_of(rows), cuda::threads_for(words / kN), 0, stream>>>(
            words, static_cast<const T*>(scores), column, mine,
            static_cast<const Wide<T>*>(normaliser), static_cast<const Wide<T>*>(gradient),
            static_cast<T*>(back));
      },
      scores, back);
  cuda::check_launch("loss_slopes");
}

}  // namespace smp::tensor_parallel
