// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/flatten_kernel.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/cuda/thread_lanes.h"

namespace smp::sharding {
namespace {

using testing::ElementsAre;

TEST(FlattenKernel, AddsWhatIsThereAndFillsTheRestWithZeros) {
  const std::vector<double> source{1, 2, 3};
  const std::vector<float> added{10, 20, 30};
  std::vector<float> flat(12, -1);
  FlatTable table;
  table.add({flat.data(), source.data(), added.data(), 3});
  table.add({flat.data() + 3, source.data(), nullptr, 3});
  table.add({flat.data() + 6, nullptr, added.data(), 3});
  table.add({flat.data() + 9, nullptr, nullptr, 2});

  for (std::int64_t block = 0; block < table.blocks(); ++block) {
    cuda::ThreadBlock(2).run(
        [&](const auto& lanes) { flatten_block<float, double>(lanes, table, block); });
  }

  EXPECT_THAT(flat, ElementsAre(11, 22, 33, 1, 2, 3, 10, 20, 30, 0, 0, -1));
}

/// Packs of four where memory is aligned for them, and what is left behind them, in every place.
TEST(FlattenKernel, LanesTakeAlignedMemoryInPacks) {
  constexpr std::int64_t kElements = 2 * cuda::kElementsPerBlock + 77;
  alignas(16) static float source[kElements + 1];
  alignas(16) static float added[kElements + 1];
  alignas(16) static float flat[kElements + 2];
  for (std::int64_t i = 0; i <= kElements; ++i) {
    source[i] = static_cast<float>(i);
    added[i] = static_cast<float>(3 * i);
  }
  for (const std::int64_t offset : {0, 1}) {
    for (const bool adds : {false, true}) {
      std::fill(std::begin(flat), std::end(flat), -1.0F);
      FlatTable table;
      table.add({flat + offset, source + offset, adds ? added + offset : nullptr, kElements});

      for (std::int64_t block = 0; block < table.blocks(); ++block) {
        cuda::ThreadBlock(3).run(
            [&](const auto& lanes) { flatten_block<float, float>(lanes, table, block); });
      }

      for (std::int64_t i = offset; i < kElements + offset; ++i) {
        ASSERT_EQ(flat[i], static_cast<float>(adds ? 4 * i : i)) << i << " from " << offset;
      }
      ASSERT_EQ(flat[kElements + offset], -1.0F);
    }
  }
}

}  // namespace
}  // namespace smp::sharding
