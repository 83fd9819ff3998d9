// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/shard_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::sharding {
namespace {

using ::testing::ElementsAre;

TEST(ShardRanks, ConsecutiveRanksShareACopy) {
  const ShardRanks third = split_ranks({0, 1, 2, 3}, 2, 2);
  EXPECT_THAT(third.shards, ElementsAre(2, 3));
  EXPECT_THAT(third.replicas, ElementsAre(0, 2));
}

TEST(ShardRanks, MembersNeedNotBeConsecutive) {
  const ShardRanks split = split_ranks({1, 3, 5, 7}, 2, 7);
  EXPECT_THAT(split.shards, ElementsAre(5, 7));
  EXPECT_THAT(split.replicas, ElementsAre(3, 7));
}

TEST(ShardRanks, EachRankMayHoldAllOrOneShardAlone) {
  EXPECT_THAT(split_ranks({0, 1, 2}, 1, 1).replicas, ElementsAre(0, 1, 2));
  EXPECT_THAT(split_ranks({0, 1, 2}, 3, 1).replicas, ElementsAre(1));
}

TEST(ShardRanks, GroupsThatDoNotDivideAreABugOfTheCaller) {
  EXPECT_THROW(split_ranks({0, 1, 2}, 2, 0), InternalError);
  EXPECT_THROW(split_ranks({0, 1}, 2, 5), InternalError);
}

}  // namespace
}  // namespace smp::sharding
