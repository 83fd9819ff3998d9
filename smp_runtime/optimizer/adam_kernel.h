// SPDX-License-Identifier: Apache-2.0
// One step of Adam over runs of elements: what a GPU's block and the CPU do alike. Without Torch.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "smp_runtime/cuda/launch.h"
#include "smp_runtime/cuda/pack.h"
#include "smp_runtime/cuda/piece_table.h"

namespace smp::optimizer {

/// Elements of one type, in memory of their own.
struct AdamPiece {
  void* parameter = nullptr;
  const void* gradient = nullptr;
  void* first = nullptr;   ///< moment
  void* second = nullptr;  ///< moment
  std::int64_t elements = 0;
};
using AdamTable = cuda::PieceTable<AdamPiece>;

struct AdamNumbers {
  double factor = 1;  ///< of gradients: what unscales or clips them
  double rate = 0;
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double decay = 0;
  bool decoupled = false;  ///< the decay shrinks parameters, and is no part of gradients
  double scale1 = 1;       ///< 1 - beta1^step, or 1 without correction
  double scale2 = 1;
};

/// Adam (arXiv:1412.6980), with decoupled decay AdamW (arXiv:1711.05101); computes in 32 bits at
/// least.
template <typename T, typename Lanes>
SMP_ON_BOTH void adam_block(const Lanes& lanes, const AdamTable& table, std::int64_t block,
                            const AdamNumbers& numbers) {
  using W = cuda::Wide<T>;
  const cuda::BlockRange range = table.range(block);
  const AdamPiece& piece = table.pieces[range.piece];
  auto* const parameter = static_cast<T*>(piece.parameter);
  const auto* const gradient = static_cast<const T*>(piece.gradient);
  auto* const first = static_cast<T*>(piece.first);
  auto* const second = static_cast<T*>(piece.second);
  const W factor = static_cast<W>(numbers.factor);
  const W beta1 = static_cast<W>(numbers.beta1);
  const W beta2 = static_cast<W>(numbers.beta2);
  const W share1 = static_cast<W>(1 - numbers.beta1);
  const W share2 = static_cast<W>(1 - numbers.beta2);
  const W shrink = static_cast<W>(numbers.decoupled ? 1 - numbers.rate * numbers.decay : 1);
  const W added = static_cast<W>(numbers.decoupled ? 0 : numbers.decay);
  const W scale1 = static_cast<W>(numbers.scale1);
  const W root2 = static_cast<W>(std::sqrt(numbers.scale2));
  const W epsilon = static_cast<W>(numbers.epsilon);
  const W rate = static_cast<W>(numbers.rate);
  const auto step = [&](T& at, const T& gradient_at, T& first_at, T& second_at) {
    const W weight = static_cast<W>(at) * shrink;
    const W slope = static_cast<W>(gradient_at) * factor + added * weight;
    const W mean = static_cast<W>(first_at) * beta1 + share1 * slope;
    const W square = static_cast<W>(second_at) * beta2 + share2 * slope * slope;
    const W direction = mean / scale1 / (std::sqrt(square) / root2 + epsilon);
    first_at = static_cast<T>(mean);
    second_at = static_cast<T>(square);
    at = static_cast<T>(weight - rate * direction);
  };
  std::int64_t begin = range.begin;
  constexpr int N = cuda::kPack<T>;
  if constexpr (N > 1) {  // one lane of the CPU gets vectors from the compiler
    if (lanes.count() > 1 && cuda::begins_pack<N>(parameter) && cuda::begins_pack<N>(gradient) &&
        cuda::begins_pack<N>(first) && cuda::begins_pack<N>(second)) {
      for (std::int64_t i = begin + lanes.first() * N; i + N <= range.end; i += lanes.count() * N) {
        auto parameters = cuda::load<N>(parameter + i);
        const auto gradients = cuda::load<N>(gradient + i);
        auto firsts = cuda::load<N>(first + i);
        auto seconds = cuda::load<N>(second + i);
        for (int k = 0; k < N; ++k) {
          step(parameters.items[k], gradients.items[k], firsts.items[k], seconds.items[k]);
        }
        cuda::store<N>(parameter + i, parameters);
        cuda::store<N>(first + i, firsts);
        cuda::store<N>(second + i, seconds);
      }
      begin += (range.end - begin) / N * N;
    }
  }
  for (std::int64_t i = begin + lanes.first(); i < range.end; i += lanes.count()) {
    step(parameter[i], gradient[i], first[i], second[i]);
  }
}

/// The same on a GPU. Throws HostError if the kernel does not start.
void launch_adam(cuda::NumberType type, const std::vector<AdamPiece>& pieces,
                 const AdamNumbers& numbers, cuda::Stream stream);

}  // namespace smp::optimizer
