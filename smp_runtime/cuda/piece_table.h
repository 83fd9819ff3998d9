// SPDX-License-Identifier: Apache-2.0
// Many runs of elements for one kernel: which block does what of them.
//
// A table travels as a kernel's argument, so its size is limited; longer lists take several tables.
// C++17, without Torch and CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "smp_runtime/cuda/lanes.h"

namespace smp::cuda {

constexpr std::int64_t kElementsPerBlock = 4096;

/// One block's work: elements [begin, end) of a piece.
struct BlockRange {
  int piece = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// Runs that are described by `Piece`, which has a member `elements`, above 0.
template <typename Piece>
struct PieceTable {
  static constexpr int kMost = 64;  ///< 64 pieces of 40 bytes: under the 4 KiB of any GPU

  Piece pieces[kMost] = {};
  std::int64_t end_block[kMost] = {};  ///< of each piece: the first one that is not its own
  int count = 0;

  SMP_ON_BOTH bool full() const { return count == kMost; }
  SMP_ON_BOTH std::int64_t blocks() const { return count == 0 ? 0 : end_block[count - 1]; }

  SMP_ON_BOTH void add(const Piece& piece) {
    const std::int64_t before = blocks();
    pieces[count] = piece;
    end_block[count] = before + (piece.elements + kElementsPerBlock - 1) / kElementsPerBlock;
    ++count;
  }

  /// `block` is below blocks().
  SMP_ON_BOTH BlockRange range(std::int64_t block) const {
    int low = 0;
    int high = count - 1;
    while (low < high) {  // the first piece that ends behind the block
      const int middle = (low + high) / 2;
      if (end_block[middle] > block) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    const std::int64_t own = low == 0 ? block : block - end_block[low - 1];
    const std::int64_t begin = own * kElementsPerBlock;
    const std::int64_t rest = pieces[low].elements - begin;
    return {low, begin, begin + (rest < kElementsPerBlock ? rest : kElementsPerBlock)};
  }
};

/// Calls `launch` with tables of all `pieces`, a list of Piece; those without elements are left
/// out.
template <typename Pieces, typename Launch>
void in_tables(const Pieces& pieces, const Launch& launch) {
  using Piece = typename Pieces::value_type;
  PieceTable<Piece> table;
  for (const Piece& piece : pieces) {
    if (piece.elements == 0) continue;
    table.add(piece);
    if (!table.full()) continue;
    launch(table);
    table = {};
  }
  if (table.count > 0) launch(table);
}

}  // namespace smp::cuda
