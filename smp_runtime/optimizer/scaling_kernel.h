// SPDX-License-Identifier: Apache-2.0
// Scaling of gradients, and their norm with it, in one reading. Without Torch.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/piece_table.h"

namespace smp::optimizer {

struct ScaledPiece {
  void* values = nullptr;
  std::int64_t elements = 0;
};
using ScaledTable = cuda::PieceTable<ScaledPiece>;

/// Multiplies a block's elements by `factor`; sum[block] becomes the sum of their squares, in 64
/// bits: not finite if one of them is not.
template <typename T, typename Lanes>
SMP_ON_BOTH void scale_block(const Lanes& lanes, const ScaledTable& table, std::int64_t block,
                             double factor, double* sum) {
  using W = cuda::Wide<T>;
  const cuda::BlockRange range = table.range(block);
  auto* const values = static_cast<T*>(table.pieces[range.piece].values);
  const W wide_factor = static_cast<W>(factor);
  double own = 0;
  for (std::int64_t i = range.begin + lanes.first(); i < range.end; i += lanes.count()) {
    const W value = static_cast<W>(values[i]) * wide_factor;
    values[i] = static_cast<T>(value);
    own += static_cast<double>(value) * static_cast<double>(value);
  }
  own = lanes.sum(own);
  if (lanes.first() == 0) sum[block] = own;
}

/// The same on a GPU; `sums` there has an element for each block of all tables, in order.
void launch_scale(cuda::NumberType type, const std::vector<ScaledPiece>& pieces, double factor,
                  double* sums, cuda::Stream stream);

}  // namespace smp::optimizer
