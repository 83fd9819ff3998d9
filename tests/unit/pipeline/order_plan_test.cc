// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/order_plan.h"

#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "smp_runtime/pipeline/open_microbatches.h"

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

TEST(OrderPlan, KeepsNoMoreMicrobatchesOpenThanItsRankNeeds) {
  constexpr int kRanks = 4;
  std::vector<Visit> visits;
  for (int rank = 0; rank < kRanks; ++rank) visits.push_back({.rank = rank, .depth = rank});
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    visits.push_back({.rank = rank, .phase = Phase::kBackward, .depth = rank});
  }

  const auto order = plan_order(visits, 32, kRanks + 2, Schedule::kInterleaved, kRanks);

  for (int rank = 0; rank < kRanks; ++rank) {
    std::set<int64_t> open;
    size_t most = 0;
    for (const int64_t microbatch : order[static_cast<size_t>(rank)]) {
      if (!open.insert(microbatch).second) open.erase(microbatch);
      most = std::max(most, open.size());
    }
    EXPECT_LE(most, static_cast<size_t>(kRanks + 2 - rank)) << "rank " << rank;
    EXPECT_TRUE(open.empty());
  }
}

TEST(OpenMicrobatches, AreFewerTheMoreRanksWereBefore) {
  OpenMicrobatches open(Schedule::kInterleaved, 6, 4);
  for (const int64_t microbatch : {3, 4, 5, 6}) open.open(microbatch);

  EXPECT_TRUE(open.admits(7, 1));
  EXPECT_FALSE(open.admits(7, 2));
  open.close(4);
  EXPECT_TRUE(open.admits(7, 2));
}

TEST(OpenMicrobatches, NeverHoldUpTheOldest) {
  OpenMicrobatches open(Schedule::kInterleaved, 6, 4);
  for (const int64_t microbatch : {3, 4, 5, 6, 7, 8}) open.open(microbatch);

  EXPECT_TRUE(open.admits(2, 3));
  EXPECT_FALSE(open.admits(9, 3));
}

TEST(OpenMicrobatches, FollowTheSettingAndTheSchedule) {
  OpenMicrobatches few(Schedule::kInterleaved, 2, 4);
  OpenMicrobatches many(Schedule::kInterleaved, 16, 4);
  OpenMicrobatches all(Schedule::kSimple, 6, 4);
  for (int64_t microbatch = 0; microbatch < 12; ++microbatch) {
    if (microbatch < 2) few.open(microbatch);
    many.open(microbatch);
    all.open(microbatch);
  }

  EXPECT_FALSE(few.admits(12, 0));
  EXPECT_TRUE(many.admits(12, 3));
  EXPECT_FALSE(many.admits(12, 4));
  EXPECT_TRUE(all.admits(12, 3));
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
