// SPDX-License-Identifier: Apache-2.0
// Tensors laid end to end: what a GPU's block and the CPU do alike. Without Torch.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/pack.h"
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
  std::int64_t begin = range.begin;
  constexpr int N = cuda::kPack<Target>;
  if constexpr (N > 1) {
    if (lanes.count() > 1 && cuda::begins_pack<N>(target) && cuda::begins_pack<N>(source) &&
        cuda::begins_pack<N>(added)) {
      const std::int64_t step = lanes.count() * N;
      for (std::int64_t i = begin + lanes.first() * N; i + N <= range.end;
           i += cuda::kAtOnce * step) {
        const auto has = [&](int k) { return i + k * step + N <= range.end; };
        // Behind the end the first one again: loads without a condition are under way together.
        const auto place = [&](int k) { return has(k) ? i + k * step : i; };
        cuda::Pack<Source, N> sources[cuda::kAtOnce] = {};
        cuda::Pack<Target, N> more[cuda::kAtOnce] = {};
        if (source != nullptr) {
          for (int k = 0; k < cuda::kAtOnce; ++k) sources[k] = cuda::load<N>(source + place(k));
        }
        if (added != nullptr) {
          for (int k = 0; k < cuda::kAtOnce; ++k) more[k] = cuda::load<N>(added + place(k));
        }
        for (int k = 0; k < cuda::kAtOnce; ++k) {
          cuda::Pack<Target, N> sums;
          for (int n = 0; n < N; ++n) {
            W value = static_cast<W>(sources[k].items[n]);
            if (added != nullptr) value += static_cast<W>(more[k].items[n]);
            sums.items[n] = static_cast<Target>(value);
          }
          if (has(k)) cuda::store<N>(target + i + k * step, sums);
        }
      }
      begin += (range.end - begin) / N * N;
    }
  }
  for (std::int64_t i = begin + lanes.first(); i < range.end; i += lanes.count()) {
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
