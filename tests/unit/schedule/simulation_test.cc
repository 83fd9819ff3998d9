// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/schedule/simulation.h"

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "smp_runtime/schedule/open_microbatches.h"

namespace smp::schedule {
namespace {

/// Two stages: rank 0, 1, 0 forward, then 0, 1, 0 backward.
std::vector<Run> two_stages() {
  return {{.rank = 0},
          {.rank = 1, .depth = 1},
          {.rank = 0},
          {.rank = 0, .phase = Phase::kBackward},
          {.rank = 1, .phase = Phase::kBackward, .depth = 1},
          {.rank = 0, .phase = Phase::kBackward}};
}

std::vector<std::vector<int64_t>> order_of(std::span<const Run> runs, const ScheduleShape& shape,
                                           int ranks) {
  std::vector<std::vector<int64_t>> orders;
  for (const auto& work : simulate_schedule(runs, shape, ranks).orders()) {
    std::vector<int64_t>& order = orders.emplace_back();
    for (const PlannedWork& one : work) order.push_back(one.microbatch);
  }
  return orders;
}

TEST(Simulation, EveryRankTakesEveryRunOnce) {
  const auto order = order_of(two_stages(), {.microbatches = 5, .active_microbatches = 3}, 3);

  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) {
    EXPECT_EQ(std::ranges::count(order[0], microbatch), 4);
    EXPECT_EQ(std::ranges::count(order[1], microbatch), 2);
  }
  EXPECT_TRUE(order[2].empty());
}

TEST(Simulation, OneActiveMicrobatchRunsAlone) {
  const auto order = order_of(two_stages(), {.microbatches = 2, .active_microbatches = 1}, 2);

  EXPECT_EQ(order[0], (std::vector<int64_t>{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(order[1], (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(Simulation, SimpleDoesAllForwardsOfARankFirst) {
  const auto order = order_of(two_stages(), {.microbatches = 3, .schedule = Schedule::kSimple}, 2);

  EXPECT_EQ(order[1], (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
}

std::vector<int64_t> begins_of(const std::vector<BegunRun>& runs) {
  std::vector<int64_t> begins;
  for (const BegunRun& run : runs) begins.push_back(run.begin);
  return begins;
}

TEST(Simulation, SaysWhenEachRunBegins) {
  const auto runs = runs_of_equal_stages(2, 2, 4);

  const Simulation step = simulate_schedule(runs, {.microbatches = 2, .active_microbatches = 4}, 2);

  for (size_t place = 0; place < 4; ++place) {
    EXPECT_EQ(step.orders()[1][place], (PlannedWork{.microbatch = place < 2 ? 0 : 1}));
  }
  EXPECT_EQ(begins_of(step.begun[0]), (std::vector<int64_t>{0, 2, 8, 14}));
  EXPECT_EQ(begins_of(step.begun[1]), (std::vector<int64_t>{2, 4, 8, 10}));
  EXPECT_EQ(runs[step.begun[1][1].run].phase, Phase::kBackward);
  EXPECT_EQ(step.length, 18);
  EXPECT_DOUBLE_EQ(step.use(), 12.0 / 18);
}

TEST(Simulation, EqualStagesThatGoOnlyForwardFillAndDrainOnce) {
  const auto runs = runs_of_equal_stages(3, 5, 0);

  const Simulation step = simulate_schedule(runs, {.microbatches = 4, .active_microbatches = 5}, 3);

  EXPECT_EQ(step.length, (4 + 3 - 1) * 5);
}

/// The most microbatches that each rank has open at one time, under the plan of a step in which
/// every microbatch goes `rounds` times through the ranks, and back.
std::vector<size_t> most_open(int ranks, int rounds) {
  std::vector<Run> runs;
  for (int stage = 0; stage < rounds * ranks; ++stage) {
    runs.push_back({.rank = stage % ranks, .depth = 1});
  }
  for (int stage = rounds * ranks - 1; stage >= 0; --stage) {
    runs.push_back({.rank = stage % ranks, .phase = Phase::kBackward, .depth = 1});
  }
  const auto order = order_of(runs, {.microbatches = 32, .active_microbatches = ranks + 2}, ranks);

  std::vector<size_t> most(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    std::map<int64_t, int> seen;
    size_t open = 0;
    for (const int64_t microbatch : order[rank]) {
      const int run = ++seen[microbatch];
      if (run == 1) ++open;
      most[rank] = std::max(most[rank], open);
      if (run == 2 * rounds) --open;
    }
    EXPECT_EQ(open, 0);
  }
  return most;
}

TEST(Simulation, KeepsNoMoreMicrobatchesOpenThanItsRankNeeds) {
  const std::vector<size_t> most = most_open(4, 1);

  for (size_t rank = 0; rank < most.size(); ++rank) EXPECT_LE(most[rank], 6 - rank);
}

TEST(Simulation, KeepsRanksBusyThatMicrobatchesRevisit) {
  for (const size_t open : most_open(4, 3)) EXPECT_GT(open, 3);
}

/// Groups of layers on `ranks` ranks in zigzag, each with the same three times; rank 0 has the
/// body.
std::vector<Run> zigzag(int ranks, int chunks, int64_t time) {
  std::vector<Run> runs;
  for (int stage = 0; stage < chunks * ranks; ++stage) {
    const int within = stage % ranks;
    const int rank = stage / ranks % 2 == 0 ? within : ranks - 1 - within;
    runs.push_back({.rank = rank, .depth = rank == 0 ? 0 : 1, .work = time});
  }
  for (int stage = chunks * ranks - 1; stage >= 0; --stage) {
    Run run = runs[static_cast<size_t>(stage)];
    run.phase = Phase::kBackward;
    run.deferred = time;
    runs.push_back(run);
  }
  return runs;
}

struct ZeroBubble {
  int chunks;
  double memory;
  double most_of_bound;  ///< length over that of a step in which all ranks work all the time
};

class ZeroBubbleTest : public ::testing::TestWithParam<ZeroBubble> {};

TEST_P(ZeroBubbleTest, TakesLittleMoreThanTheWork) {
  const auto [chunks, memory, most] = GetParam();
  constexpr int kRanks = 4;
  constexpr int64_t kMicrobatches = 8;
  const ScheduleShape shape{.microbatches = kMicrobatches,
                            .active_microbatches = 2 * kRanks + 2,
                            .schedule = Schedule::kZeroBubble,
                            .memory = memory};

  const Simulation step = simulate_schedule(zigzag(kRanks, chunks, 12 / chunks), shape, kRanks);

  const int64_t bound = kMicrobatches * 3 * 12;
  for (const int64_t busy : step.busy) EXPECT_EQ(busy, bound);
  EXPECT_LE(static_cast<double>(step.length), most * static_cast<double>(bound));
  for (const double kept : step.memory) {
    EXPECT_LE(kept, std::max(1.0 / kRanks, memory) + 1e-6);
  }
}

TEST(Simulation, KeepsRecomputedActivationsAsMemorySays) {
  constexpr int kRanks = 4;
  auto runs = zigzag(kRanks, 2, 6);
  for (schedule::Run& run : runs) {
    if (run.phase == Phase::kBackward) run.work *= 2;
    run.recomputes = run.phase == Phase::kBackward;
  }
  for (const int64_t most : {1, 2}) {
    const ScheduleShape shape{.microbatches = 8,
                              .active_microbatches = 10,
                              .schedule = Schedule::kZeroBubble,
                              .memory = static_cast<double>(most)};

    const Simulation step = simulate_schedule(runs, shape, kRanks);

    for (const std::vector<BegunRun>& begun : step.begun) {
      int pieces = 0;  // backwards whose deferred work is to come; a microbatch has two here
      for (const BegunRun& run : begun) {
        if (run.is_deferred) {
          --pieces;
        } else if (runs[run.run].phase == Phase::kBackward) {
          ++pieces;
        }
        EXPECT_LE(pieces, most * 2 + 1);
      }
    }
    EXPECT_LE(static_cast<double>(step.length), (most == 1 ? 1.19 : 1.13) * 8 * 4 * 12);
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, ZeroBubbleTest,
                         ::testing::Values(ZeroBubble{1, 1, 1.13}, ZeroBubble{1, 2, 1.13},
                                           ZeroBubble{2, 1, 1.07}, ZeroBubble{2, 0.5, 1.7},
                                           ZeroBubble{4, 1, 1.04}, ZeroBubble{4, 0.5, 1.7},
                                           ZeroBubble{4, 1.0 / 3, 3.0}));

TEST(Simulation, WorkIsDeferredUnderZeroBubbleAlone) {
  const auto runs = zigzag(4, 1, 1);
  const ScheduleShape shape{.microbatches = 8, .active_microbatches = 6};

  EXPECT_EQ(simulate_schedule(runs, shape, 4).length, (8 + 3) * 3);
}

TEST(Simulation, OrdersHaveWorkWhereItIsDone) {
  constexpr ScheduleShape kShape{
      .microbatches = 2, .active_microbatches = 2, .schedule = Schedule::kZeroBubble};
  const Simulation step = simulate_schedule(zigzag(2, 1, 1), kShape, 2);

  const auto run = [](int64_t microbatch) { return PlannedWork{.microbatch = microbatch}; };
  const auto work = [](int64_t microbatch) {
    return PlannedWork{.microbatch = microbatch, .is_deferred = true};
  };
  // The last rank has its second forward in turn, and all of its work behind its backwards.
  EXPECT_EQ(step.orders()[0], (std::vector{run(0), run(1), run(0), work(0), run(1), work(1)}));
  EXPECT_EQ(step.orders()[1], (std::vector{run(0), run(0), run(1), run(1), work(0), work(1)}));
}

TEST(OpenMicrobatches, OfZeroBubbleLeaveRoomForOlderOnes) {
  OpenMicrobatches open({.active_microbatches = 8, .schedule = Schedule::kZeroBubble}, 4);
  for (const int64_t work : {5, 5}) {  // two calls
    open.begin(0);
    open.left(0, work);
  }
  for (int call = 0; call < 2; ++call) open.end(0);
  for (const int64_t microbatch : {1, 1, 2, 3}) open.begin(microbatch);

  EXPECT_TRUE(open.admits(4, 0));  // four are kept, and two to come: there is room for eight
  open.begin(4);
  EXPECT_FALSE(open.admits(5, 0));
  EXPECT_TRUE(open.admits(2, 0));
  for (int call = 0; call < 2; ++call) open.end(1);
  EXPECT_TRUE(open.admits(5, 0));
}

TEST(OpenMicrobatches, OfZeroBubbleCountByTheWorkThatEarlierOnesHaveLeft) {
  OpenMicrobatches open({.active_microbatches = 8, .schedule = Schedule::kZeroBubble}, 2);
  const auto begin = [&](int64_t microbatch, int runs) {
    for (int run = 0; run < runs; ++run) open.begin(microbatch, /*is_body=*/true);
  };
  begin(0, 3);
  EXPECT_DOUBLE_EQ(open.memory(), 0.5);  // nothing is known: the first run counts for all
  for (const int64_t work : {0, 6, 2}) open.left(0, work);
  open.close(0);

  begin(1, 1);
  EXPECT_DOUBLE_EQ(open.memory(), 2.0 / 16);
  begin(1, 2);
  EXPECT_DOUBLE_EQ(open.memory(), 8.0 / 16);
  open.end(1);
  EXPECT_DOUBLE_EQ(open.memory(), 8.0 / 16);
  open.end(1);
  EXPECT_DOUBLE_EQ(open.memory(), 2.0 / 16);
  open.end(1);
  EXPECT_DOUBLE_EQ(open.memory(), 2.0 / 16) << "a body keeps some until its end";
}

TEST(OpenMicrobatches, AreFewerTheMoreRanksWereBefore) {
  OpenMicrobatches open({.active_microbatches = 6}, 4);
  for (const int64_t microbatch : {3, 4, 5, 6}) open.begin(microbatch);

  EXPECT_TRUE(open.admits(7, 1));
  EXPECT_FALSE(open.admits(7, 2));
  open.close(4);
  EXPECT_TRUE(open.admits(7, 2));
}

TEST(OpenMicrobatches, NeverHoldUpTheOldest) {
  OpenMicrobatches open({.active_microbatches = 6}, 4);
  for (const int64_t microbatch : {3, 4, 5, 6, 7, 8}) open.begin(microbatch);

  EXPECT_TRUE(open.admits(2, 3));
  EXPECT_FALSE(open.admits(9, 3));
}

TEST(OpenMicrobatches, AreAsManyAsOnTheFirstRankAfterARevisit) {
  OpenMicrobatches open({.active_microbatches = 6}, 4);
  for (const int64_t microbatch : {3, 4, 5, 6, 7}) open.begin(microbatch);

  EXPECT_FALSE(open.admits(8, 3));
  open.revisit();
  EXPECT_TRUE(open.admits(8, 3));
  open.begin(8);
  EXPECT_FALSE(open.admits(9, 3));
}

TEST(OpenMicrobatches, FollowTheSettingAndTheSchedule) {
  OpenMicrobatches few({.active_microbatches = 2}, 4);
  OpenMicrobatches many({.active_microbatches = 16}, 4);
  OpenMicrobatches all({.active_microbatches = 6, .schedule = Schedule::kSimple}, 4);
  for (int64_t microbatch = 0; microbatch < 12; ++microbatch) {
    if (microbatch < 2) few.begin(microbatch);
    many.begin(microbatch);
    all.begin(microbatch);
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
}  // namespace smp::schedule
