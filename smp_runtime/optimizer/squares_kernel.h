// SPDX-License-Identifier: Apache-2.0
// The squares of gradients, added up, in one reading. Without Torch.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/pack.h"
#include "smp_runtime/cuda/piece_table.h"

namespace smp::optimizer {

struct SquaredPiece {
  const void* values = nullptr;
  std::int64_t elements = 0;
};
using SquaredTable = cuda::PieceTable<SquaredPiece>;

/// sum[block] becomes the sum of the squares of a block's elements, in 64 bits: not finite if one
/// of them is not.
template <typename T, typename Lanes>
SMP_ON_BOTH void squares_block(const Lanes& lanes, const SquaredTable& table, std::int64_t block,
                               double* sum) {
  const cuda::BlockRange range = table.range(block);
  const auto* const values = static_cast<const T*>(table.pieces[range.piece].values);
  const auto square = [](T given) {
    const auto value = static_cast<double>(static_cast<cuda::Wide<T>>(given));
    return value * value;
  };
  // Four sums at once: one would wait for each addition.
  double parts[4] = {};
  std::int64_t begin = range.begin;
  constexpr int N = cuda::kPack<T>;
  if constexpr (N > 1) {
    if (lanes.count() > 1 && cuda::begins_pack<N>(values)) {
      const std::int64_t whole = (range.end - begin) / N * N;
      cuda::each_pack<N>(lanes, whole, values + begin, [&](std::int64_t, const auto& pack) {
        for (int j = 0; j < N; ++j) parts[j % 4] += square(pack.items[j]);
      });
      begin += whole;
    }
  }
  const std::int64_t step = lanes.count();
  std::int64_t i = begin + lanes.first();
  for (; i + 3 * step < range.end; i += 4 * step) {
    for (int part = 0; part < 4; ++part) parts[part] += square(values[i + part * step]);
  }
  for (; i < range.end; i += step) parts[0] += square(values[i]);
  const double own = lanes.sum((parts[0] + parts[1]) + (parts[2] + parts[3]));
  if (lanes.first() == 0) sum[block] = own;
}

/// The same on a GPU; `sums` there has an element for each block of all tables, in order.
void launch_squares(cuda::NumberType type, const std::vector<SquaredPiece>& pieces, double* sums,
                    cuda::Stream stream);

}  // namespace smp::optimizer
