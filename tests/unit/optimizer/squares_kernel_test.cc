// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/squares_kernel.h"

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/cuda/thread_lanes.h"

namespace smp::optimizer {
namespace {

std::vector<float> counted(std::size_t elements) {
  std::vector<float> values;
  for (std::size_t i = 0; i < elements; ++i) values.push_back(static_cast<float>(i % 17) - 8);
  return values;
}

TEST(SquaresKernel, AddsUpEachBlock) {
  for (const int extra : {0, 1, 3, 4, 21}) {
    for (const int skipped : {0, 1}) {  // behind one element no wide load may begin
      const std::vector<float> memory = counted(2 * cuda::kElementsPerBlock + extra + skipped);
      const std::span<const float> values = std::span(memory).subspan(skipped);
      SquaredTable table;
      table.add({values.data(), static_cast<std::int64_t>(values.size())});
      std::vector<double> sums(3, 0);

      for (std::int64_t block = 0; block < table.blocks(); ++block) {
        cuda::ThreadBlock(5).run(
            [&](const auto& lanes) { squares_block<float>(lanes, table, block, sums.data()); });
      }

      double expected = 0;
      for (const float value : values) expected += value * value;
      EXPECT_EQ(sums[0] + sums[1] + sums[2], expected) << extra;  // integers: exact
    }
  }
}

TEST(SquaresKernel, ShowsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const std::size_t place : {0U, 77U, 98U, 99U}) {
      std::vector<float> values = counted(100);
      values[place] = bad;
      SquaredTable table;
      table.add({values.data(), 100});
      double sum = 0;

      squares_block<float>(cuda::OneLane(), table, 0, &sum);

      EXPECT_FALSE(std::isfinite(sum)) << bad << " at " << place;
    }
  }
}

}  // namespace
}  // namespace smp::optimizer
