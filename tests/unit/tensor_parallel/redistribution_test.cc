// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::tensor_parallel {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::ThrowsMessage;

std::vector<std::int64_t> moved(const Redistribution& redistribution,
                                std::vector<std::int64_t> sizes) {
  return moved_sizes(redistribution, sizes, 4, "the batch");
}

TEST(Redistribution, ShapesFollowFromTheNumberOfRanks) {
  EXPECT_THAT(moved({.kind = RedistributionKind::kStay}, {3, 5}), ElementsAre(3, 5));
  EXPECT_THAT(moved({.kind = RedistributionKind::kAllReduce}, {3, 5}), ElementsAre(3, 5));
  EXPECT_THAT(moved({.kind = RedistributionKind::kGather, .dim = -1}, {3, 5}), ElementsAre(3, 20));
  EXPECT_THAT(moved({.kind = RedistributionKind::kSlice, .dim = 1}, {3, 8}), ElementsAre(3, 2));
  EXPECT_THAT(moved({.kind = RedistributionKind::kReduceScatter, .dim = 0}, {8, 3}),
              ElementsAre(2, 3));
  EXPECT_THAT(moved({.kind = RedistributionKind::kExchange, .dim = -1, .join = 0}, {2, 7, 8}),
              ElementsAre(8, 7, 2));
}

TEST(Redistribution, ThereAndBackGivesTheShapeItBeganWith) {
  const Redistribution there{.kind = RedistributionKind::kExchange, .dim = -1, .join = 0};
  const Redistribution back{.kind = RedistributionKind::kExchange, .dim = 0, .join = -1};

  EXPECT_THAT(moved(back, moved(there, {2, 7, 8})), ElementsAre(2, 7, 8));
}

TEST(Redistribution, ShapesThatDoNotDivideAreNamed) {
  EXPECT_THAT(
      [] {
        moved({.kind = RedistributionKind::kSlice, .dim = -1}, {3, 6});
      },
      ThrowsMessage<ConfigError>(
          HasSubstr("the batch has shape [3, 6]: its dim 1 of 6 does not divide by the 4 ranks")));
  EXPECT_THAT(
      [] {
        moved({.kind = RedistributionKind::kGather, .dim = 2}, {3, 6});
      },
      ThrowsMessage<ConfigError>(HasSubstr("which has no dim 2")));
}

TEST(Redistribution, BytesAreThoseOfARing) {
  EXPECT_EQ(bytes_sent({.kind = RedistributionKind::kSlice}, 800, 4), 0);
  EXPECT_EQ(bytes_sent({.kind = RedistributionKind::kGather}, 200, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = RedistributionKind::kReduceScatter}, 800, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = RedistributionKind::kExchange}, 800, 4), 600);
  EXPECT_EQ(bytes_sent({.kind = RedistributionKind::kAllReduce}, 800, 4), 1200);
}

}  // namespace
}  // namespace smp::tensor_parallel
