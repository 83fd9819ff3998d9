// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/optimizer/scaling_kernel.h"

#include <cmath>
#include <limits>
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

TEST(ScalingKernel, ScalesAndMeasuresEachBlock) {
  std::vector<float> values = counted(2 * cuda::kElementsPerBlock + 3);
  const std::vector<float> before = values;
  ScaledTable table;
  table.add({values.data(), static_cast<std::int64_t>(values.size())});
  std::vector<double> sums(3, -1);

  for (std::int64_t block = 0; block < table.blocks(); ++block) {
    cuda::ThreadBlock(5).run(
        [&](const auto& lanes) { scale_block<float>(lanes, table, block, 0.5, sums.data()); });
  }

  double expected = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(values[i], before[i] / 2);
    expected += values[i] * values[i];
  }
  EXPECT_EQ(sums[0] + sums[1] + sums[2], expected);  // quarters of integers: exact
}

TEST(ScalingKernel, ShowsWhatIsNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> values = counted(100);
    values[77] = bad;
    ScaledTable table;
    table.add({values.data(), 100});
    double sum = 0;

    scale_block<float>(cuda::OneLane(), table, 0, 1.0 / 65536, &sum);

    EXPECT_FALSE(std::isfinite(sum)) << bad;
  }
}

}  // namespace
}  // namespace smp::optimizer
