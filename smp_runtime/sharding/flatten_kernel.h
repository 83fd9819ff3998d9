// SPDX-License-Identifier: Apache-2.0
// Tensors laid end to end: what a GPU's block and the CPU do alike. Without Torch.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/piece_table.h"

namespace smp::sharding {

/// target = source + added; null stands for zeros.
struct FlatPiece {
  void* target = nullptr;
  const void* source = nullptr;
  const void* added = nullptr;  ///< of the target's type
  std::int64_t elements = 0;
};
using FlatTable = cuda::PieceTable<FlatPiece>;

template <typename Target, typename Source, typename Lanes>
SMP_ON_BOTH void flatten_block(const Lanes& lanes, const FlatTable& table, std::int64_t block) {
  using W = cuda::Wide<Target>;
  const cuda::BlockRange range = table.range(block);
  const FlatPiece& piece = table.pieces[range.piece];
  auto* const target = static_cast<Target*>(piece.target);
  const auto* const source = static_cast<const Source*>(piece.source);
  const auto* const added = static_cast<const Target*>(piece.added);
  for (std::int64_t i = range.begin + lanes.first(); i < range.end; i += lanes.count()) {
    W value = 0;
    if (source != nullptr) value = static_cast<W>(source[i]);
    if (added != nullptr) value += static_cast<W>(added[i]);
    target[i] = static_cast<Target>(value);
  }
}

/// The same on a GPU. `source` is the type of `target`, or a 16-bit one where `target` is float.
/// Throws HostError if the kernel does not start.
void launch_flatten(cuda::NumberType target, cuda::NumberType source,
                    const std::vector<FlatPiece>& pieces, cuda::Stream stream);

}  // namespace smp::sharding
