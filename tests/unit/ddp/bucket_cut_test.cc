// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>

#include "smp_runtime/ddp/gradient_bucket.h"

namespace smp::ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kMiB = 1024 * 1024;

TEST(BucketCut, IsSmallAtBothEnds) {
  EXPECT_THAT(cut_buckets(std::vector<Gradient>(16, {.bytes = kMiB}), 8 * kMiB),
              ElementsAre(1, 1, 2, 4, 3, 2, 1, 1, 1));
}

TEST(BucketCut, ReachesTheUsersLimitInTheMiddle) {
  const std::vector<std::size_t> counts =
      cut_buckets(std::vector<Gradient>(100, {.bytes = kMiB}), 8 * kMiB);

  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), 100U);
  EXPECT_EQ(*std::max_element(counts.begin(), counts.end()), 8U);
  EXPECT_GE(std::count(counts.begin(), counts.end(), 8U), 6);
  EXPECT_EQ(counts.front(), 1U);
  EXPECT_EQ(counts.back(), 1U);
}

TEST(BucketCut, HoldsASmallLimitThroughout) {
  EXPECT_THAT(cut_buckets(std::vector<Gradient>(6, {.bytes = 100}), 200), ElementsAre(2, 2, 2));
  EXPECT_THAT(cut_buckets(std::vector<Gradient>(3, {.bytes = 100}), 1), ElementsAre(1, 1, 1));
}

TEST(BucketCut, DividesNoGradientAndMixesNoKinds) {
  const std::vector<Gradient> row{{.bytes = 9 * kMiB},
                                  {.bytes = 10, .kind = 1},
                                  {.bytes = 10},
                                  {.bytes = 10},
                                  {.bytes = 10, .kind = 1}};

  EXPECT_THAT(cut_buckets(row, 4 * kMiB), ElementsAre(1, 1, 2, 1));
  EXPECT_THAT(cut_buckets({}, 4 * kMiB), IsEmpty());
}

}  // namespace
}  // namespace smp::ddp
