// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/flatten_kernel.h"

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

}  // namespace
}  // namespace smp::sharding
