// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/adam_kernel.h"

#include <cmath>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda/thread_lanes.h"

namespace smp::optimizer {
namespace {

constexpr AdamNumbers kNumbers{.rate = 0.1,
                               .beta1 = 0.9,
                               .beta2 = 0.99,
                               .epsilon = 1e-8,
                               .decay = 0.5,
                               .decoupled = false,
                               .scale1 = 0.1,
                               .scale2 = 0.01};

struct Memory {
  std::vector<double> parameter, gradient, first, second;

  explicit Memory(std::size_t elements) {
    for (std::size_t i = 0; i < elements; ++i) {
      const auto x = static_cast<double>(i);
      parameter.push_back(std::sin(x));
      gradient.push_back(std::cos(3 * x));
      first.push_back(std::sin(5 * x));
      second.push_back(1 + std::cos(7 * x));
    }
  }

  AdamPiece piece() {
    return {.parameter = parameter.data(),
            .gradient = gradient.data(),
            .first = first.data(),
            .second = second.data(),
            .elements = static_cast<std::int64_t>(parameter.size())};
  }
};

TEST(AdamKernel, DoesWhatThePaperSays) {
  for (const bool decoupled : {false, true}) {
    AdamNumbers numbers = kNumbers;
    numbers.decoupled = decoupled;
    Memory memory(cuda::kElementsPerBlock + 5);
    const Memory before = memory;
    AdamTable table;
    table.add(memory.piece());

    for (std::int64_t block = 0; block < table.blocks(); ++block) {
      adam_block<double>(cuda::OneLane(), table, block, numbers);
    }

    for (std::size_t i = 0; i < memory.parameter.size(); ++i) {
      const double weight = before.parameter[i] * (decoupled ? 1 - 0.1 * 0.5 : 1);
      const double slope = before.gradient[i] + (decoupled ? 0 : 0.5 * weight);
      const double mean = 0.9 * before.first[i] + 0.1 * slope;
      const double square = 0.99 * before.second[i] + 0.01 * slope * slope;
      ASSERT_NEAR(memory.first[i], mean, 1e-12);
      ASSERT_NEAR(memory.second[i], square, 1e-12);
      ASSERT_NEAR(memory.parameter[i],
                  weight - 0.1 * (mean / 0.1) / (std::sqrt(square / 0.01) + 1e-8), 1e-12);
    }
  }
}

TEST(AdamKernel, LanesShareABlock) {
  Memory alone(1000);
  Memory shared(1000);
  AdamTable one;
  one.add(alone.piece());
  AdamTable many;
  many.add(shared.piece());

  adam_block<double>(cuda::OneLane(), one, 0, kNumbers);
  cuda::ThreadBlock(7).run(
      [&](const auto& lanes) { adam_block<double>(lanes, many, 0, kNumbers); });

  EXPECT_EQ(shared.parameter, alone.parameter);
  EXPECT_EQ(shared.first, alone.first);
  EXPECT_EQ(shared.second, alone.second);
}

/// Packs of four where all memory is aligned for them, and what is left behind them.
TEST(AdamKernel, LanesTakeAlignedMemoryInPacks) {
  constexpr std::int64_t kElements = cuda::kElementsPerBlock + 1003;
  struct Floats {
    alignas(16) float values[4][kElements + 1];
    Floats() {
      for (int kind = 0; kind < 4; ++kind) {
        for (std::int64_t i = 0; i <= kElements; ++i) {
          values[kind][i] = 1 + std::sin(static_cast<float>(i) * static_cast<float>(2 * kind + 1));
        }
      }
    }
    AdamPiece piece(std::int64_t offset) {
      return {.parameter = values[0] + offset,
              .gradient = values[1],
              .first = values[2],
              .second = values[3],
              .elements = kElements};
    }
  };
  for (const std::int64_t offset : {0, 1}) {  // the second fits no packs
    const auto alone = std::make_unique<Floats>();
    const auto shared = std::make_unique<Floats>();
    AdamTable one;
    one.add(alone->piece(offset));
    AdamTable many;
    many.add(shared->piece(offset));

    for (std::int64_t block = 0; block < one.blocks(); ++block) {
      adam_block<float>(cuda::OneLane(), one, block, kNumbers);
      cuda::ThreadBlock(3).run(
          [&](const auto& lanes) { adam_block<float>(lanes, many, block, kNumbers); });
    }

    for (int kind = 0; kind < 4; ++kind) {
      for (std::int64_t i = 0; i <= kElements; ++i) {
        ASSERT_EQ(shared->values[kind][i], alone->values[kind][i]) << kind << ", " << i;
      }
    }
  }
}

}  // namespace
}  // namespace smp::optimizer
