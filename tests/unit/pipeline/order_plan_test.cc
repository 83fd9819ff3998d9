// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/order_plan.h"

#include <algorithm>

#include <gtest/gtest.h>

namespace smp::pipeline {
namespace {

/// Two stages: rank 0, 1, 0 forward, then 0, 1, 0 backward.
std::vector<Visit> two_stages() {
  return {{.rank = 0},
          {.rank = 1, .depth = 1},
          {.rank = 0},
          {.rank = 0, .phase = Phase::kBackward},
          {.rank = 1, .phase = Phase::kBackward, .depth = 1},
          {.rank = 0, .phase = Phase::kBackward}};
}

TEST(OrderPlan, EveryRankRunsEveryVisitOnce) {
  const auto order = plan_order(two_stages(), 5, 3, Schedule::kInterleaved, 3);

  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) {
    EXPECT_EQ(std::ranges::count(order[0], microbatch), 4);
    EXPECT_EQ(std::ranges::count(order[1], microbatch), 2);
  }
  EXPECT_TRUE(order[2].empty());
}

TEST(OrderPlan, OneActiveMicrobatchRunsAlone) {
  const auto order = plan_order(two_stages(), 2, 1, Schedule::kInterleaved, 2);

  EXPECT_EQ(order[0], (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(order[1], (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(OrderPlan, SimpleDoesAllForwardsOfARankFirst) {
  const auto order = plan_order(two_stages(), 3, 3, Schedule::kSimple, 2);

  EXPECT_EQ(order[1], (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
}

constexpr TaskKey kBackwardOf3{.microbatch = 3, .phase = Phase::kBackward, .depth = 1};
constexpr TaskKey kForwardOf0{.microbatch = 0, .phase = Phase::kForward, .depth = 1};

TEST(TaskOrder, SimplePrefersForward) {
  for (const Phase last : {Phase::kForward, Phase::kBackward}) {
    EXPECT_TRUE(runs_before(Schedule::kSimple, last, kForwardOf0, kBackwardOf3));
  }
}

TEST(TaskOrder, InterleavedTakesThePhasesInTurn) {
  EXPECT_TRUE(runs_before(Schedule::kInterleaved, Phase::kForward, kBackwardOf3, kForwardOf0));
  EXPECT_TRUE(runs_before(Schedule::kInterleaved, Phase::kBackward, kForwardOf0, kBackwardOf3));
}

TEST(TaskOrder, OfOnePhaseTheDeeperCallOfTheLowestMicrobatchIsFirst) {
  const TaskKey deeper{.microbatch = 0, .phase = Phase::kForward, .depth = 2};
  const TaskKey later{.microbatch = 1, .phase = Phase::kForward, .depth = 2};

  EXPECT_TRUE(runs_before(Schedule::kInterleaved, Phase::kForward, deeper, kForwardOf0));
  EXPECT_TRUE(runs_before(Schedule::kInterleaved, Phase::kForward, kForwardOf0, later));
}

TEST(TaskOrder, InterleavedFeedsTheOtherRanksFirst) {
  const TaskKey own_backward{.microbatch = 0, .phase = Phase::kBackward};
  const TaskKey next_body{.microbatch = 4, .phase = Phase::kForward};

  EXPECT_TRUE(runs_before(Schedule::kInterleaved, Phase::kForward, next_body, own_backward));
}

}  // namespace
}  // namespace smp::pipeline
