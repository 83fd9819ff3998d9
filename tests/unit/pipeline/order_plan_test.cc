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

TEST(TaskOrder, InterleavedPrefersBackwardThenLowMicrobatchThenDepth) {
  const TaskKey backward{.microbatch = 3, .phase = Phase::kBackward};
  const TaskKey forward{.microbatch = 0, .phase = Phase::kForward};
  const TaskKey deeper{.microbatch = 0, .phase = Phase::kForward, .depth = 2};

  EXPECT_TRUE(runs_before(Schedule::kInterleaved, backward, forward));
  EXPECT_TRUE(runs_before(Schedule::kSimple, forward, backward));
  EXPECT_TRUE(runs_before(Schedule::kInterleaved, deeper, forward));
}

}  // namespace
}  // namespace smp::pipeline
