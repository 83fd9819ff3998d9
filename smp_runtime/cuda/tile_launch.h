// SPDX-License-Identifier: Apache-2.0
// Assignment of tiles to threads; for .cu files.
#pragma once

#include <cstdint>
#include <type_traits>

#include "smp_runtime/cuda/pack.h"

namespace smp::cuda {

constexpr unsigned kTileThreads = 256;
constexpr unsigned kStripThreads = 128;
constexpr unsigned kStripBlocks = 8;  ///< of them at a time on a multiprocessor

struct TileGrid {
  dim3 blocks;   ///< x: groups of rows, y: of columns
  dim3 threads;  ///< x: packs of columns, y: rows
};

/// A warp reads neighbouring packs, of as many rows as it takes. A thread has `each` rows.
inline TileGrid grid_of(std::int64_t rows, std::int64_t packs, unsigned threads, int each) {
  unsigned across = 1;
  while (across < packs && across < threads) across *= 2;
  const unsigned down = threads / across;
  const std::int64_t rows_of_block = static_cast<std::int64_t>(down) * each;
  return {.blocks = dim3(static_cast<unsigned>((rows + rows_of_block - 1) / rows_of_block),
                         static_cast<unsigned>((packs + across - 1) / across)),
          .threads = dim3(across, down)};
}

inline TileGrid tile_grid(std::int64_t rows, std::int64_t width, int pack) {
  return grid_of(rows, width / pack, kTileThreads, kAtOnce);
}

/// With a row of threads for each strip.
inline TileGrid strip_grid(std::int64_t strips, std::int64_t width, int pack) {
  return grid_of(strips, width / pack, kStripThreads, 1);
}

/// The calling thread's. Without columns, `column >= width`, it has nothing to do.
template <int N>
__device__ Tile own_tile(std::int64_t rows, std::int64_t width) {
  Tile tile;
  tile.rows = rows;
  tile.width = width;
  tile.row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y * kAtOnce + threadIdx.y;
  tile.step = blockDim.y;
  tile.column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  return tile;
}

/// The calling thread's of so many. Without columns or rows, `column >= width` or `begin >= end`,
/// it has nothing to do.
template <int N>
__device__ Strip own_strip(std::int64_t rows, std::int64_t width, std::int64_t strips) {
  Strip strip;
  strip.width = width;
  strip.number = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  strip.begin = rows * strip.number / strips;
  strip.end = strip.number < strips ? rows * (strip.number + 1) / strips : strip.begin;
  strip.column = (static_cast<std::int64_t>(blockIdx.y) * blockDim.x + threadIdx.x) * N;
  return strip;
}

/// Calls `body` with the number of elements of a pack, as a type: the most where all rows of
/// `width` elements of T that begin at the places are aligned for it, else 1.
template <typename T, typename Body, typename... Places>
void with_pack(std::int64_t width, const Body& body, const Places*... places) {
  if ((holds_packs<T, kPack<T>>(width, places) && ...)) {
    body(std::integral_constant<int, kPack<T>>());
  } else {
    body(std::integral_constant<int, 1>());
  }
}

}  // namespace smp::cuda
