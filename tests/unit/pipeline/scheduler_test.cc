// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/scheduler.h"

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>

namespace smp::pipeline {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

constexpr int kRanks = 4;
constexpr int64_t kActive = 6;

/// The last of four ranks: three microbatches may be open.
class LastRank : public ::testing::Test {
 protected:
  void call(
      int64_t microbatch, Phase phase, int64_t run = kRanks,
      const std::function<void()>& body = [] {}) {
    scheduler_.add(
        {.microbatch = microbatch, .phase = phase, .depth = 1, .run = run, .ranks = kRanks - 1},
        body);
  }

  std::vector<int64_t> run() {
    const size_t before = scheduler_.recorded().size();
    scheduler_.run_tasks([] {});
    std::vector<int64_t> ran;
    for (size_t index = before; index < scheduler_.recorded().size(); ++index) {
      ran.push_back(scheduler_.recorded()[index].microbatch);
    }
    return ran;
  }

  Scheduler scheduler_{Schedule::kInterleaved,
                       OpenMicrobatches({.active_microbatches = kActive}, kRanks), nullptr};
};

TEST_F(LastRank, HoldsForwardsUntilABackwardFreesActivations) {
  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) call(microbatch, Phase::kForward);

  EXPECT_THAT(run(), ElementsAre(0, 1, 2));
  EXPECT_THAT(scheduler_.held(), ElementsAre(3, 4));

  call(1, Phase::kBackward, 7);
  EXPECT_THAT(run(), ElementsAre(1, 3));
  EXPECT_THAT(scheduler_.held(), ElementsAre(4));

  scheduler_.end_microbatch(0);
  EXPECT_THAT(run(), ElementsAre(4));
}

TEST_F(LastRank, CountsNoForwardThatKeepsNothing) {
  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) {
    call(microbatch, Phase::kForward, kRanks, [this] { scheduler_.expect_no_backward(); });
  }

  EXPECT_THAT(run(), ElementsAre(0, 1, 2, 3, 4));
}

TEST_F(LastRank, BoundsTheNextForwardOfAMicrobatchThatHadItsBackward) {
  for (int64_t microbatch = 1; microbatch < 4; ++microbatch) call(microbatch, Phase::kForward);
  EXPECT_THAT(run(), ElementsAre(1, 2, 3));
  call(3, Phase::kBackward, 7);
  call(4, Phase::kForward);
  EXPECT_THAT(run(), ElementsAre(3, 4));

  call(3, Phase::kForward, 10);

  EXPECT_THAT(run(), IsEmpty());
  EXPECT_THAT(scheduler_.held(), ElementsAre(3));
}

TEST_F(LastRank, KeepsAsManyAsAFirstOneWhereMicrobatchesRevisit) {
  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) call(microbatch, Phase::kForward);
  run();

  call(0, Phase::kForward, 2 * kRanks);

  EXPECT_THAT(run(), ElementsAre(0, 3, 4));
}

TEST_F(LastRank, HasAPrematureForwardBeforeABackwardThatIsDue) {
  for (int64_t microbatch = 0; microbatch < 2; ++microbatch) call(microbatch, Phase::kForward);
  EXPECT_FALSE(scheduler_.has_premature_forward());
  run();
  EXPECT_FALSE(scheduler_.has_premature_forward()) << "with nothing to run";
  call(2, Phase::kForward);
  EXPECT_TRUE(scheduler_.has_premature_forward());

  call(0, Phase::kBackward, 7);
  EXPECT_FALSE(scheduler_.has_premature_forward()) << "the backward is there";
  EXPECT_THAT(run(), ElementsAre(0, 2));
}

TEST_F(LastRank, HasNoPrematureForwardWhileFewAreOpen) {
  call(0, Phase::kForward);
  run();
  call(1, Phase::kForward);

  EXPECT_FALSE(scheduler_.has_premature_forward());
}

TEST_F(LastRank, HasNoPrematureForwardWithOneMoreCallOfItsOnlyMicrobatch) {
  call(0, Phase::kForward);
  run();
  scheduler_.add({.phase = Phase::kForward, .depth = 1, .run = kRanks + 2, .ranks = kRanks}, [] {});

  EXPECT_FALSE(scheduler_.has_premature_forward());
}

TEST_F(LastRank, HasNoPrematureForwardWithABodyWhichGoesFirst) {
  for (int64_t microbatch = 0; microbatch < 2; ++microbatch) call(microbatch, Phase::kForward);
  run();
  scheduler_.add({.microbatch = 2, .phase = Phase::kForward, .ranks = kRanks - 1}, [] {});

  EXPECT_FALSE(scheduler_.has_premature_forward());
}

TEST_F(LastRank, HasNoPrematureForwardInAFixedOrder) {
  scheduler_.follow({{.microbatch = 0}, {.microbatch = 1}, {.microbatch = 2}}, /*preferred=*/false);
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    call(microbatch, Phase::kForward);
    EXPECT_FALSE(scheduler_.has_premature_forward());
    EXPECT_THAT(run(), ElementsAre(microbatch));
  }
}

/// As LastRank, with deferred work that the tests say there is.
class PreferredOrder : public ::testing::Test {
 protected:
  void add(int64_t microbatch, Phase phase = Phase::kForward, int64_t run = 1) {
    scheduler_.add({.microbatch = microbatch, .phase = phase, .depth = 1, .run = run},
                   [this, microbatch, phase] {
                     ran_.push_back(microbatch);
                     if (phase == Phase::kBackward) ++work_[microbatch].left;
                   });
  }

  bool run() {
    ran_.clear();
    return scheduler_.run_tasks([] {});
  }

  void do_work(int64_t microbatch) {
    ++work_[microbatch].done;
    scheduler_.end_kept();
  }

  std::map<int64_t, DeferredWork> work_;
  std::vector<int64_t> ran_;
  Scheduler scheduler_{
      Schedule::kZeroBubble,
      OpenMicrobatches({.active_microbatches = kActive, .schedule = Schedule::kZeroBubble}, kRanks),
      nullptr,
      {},
      [this](int64_t microbatch) { return work_[microbatch]; }};
};

TEST_F(PreferredOrder, WaitsForWhatIsNextUntilItIsOverruled) {
  scheduler_.follow({{.microbatch = 0}, {.microbatch = 1}, {.microbatch = 2}}, /*preferred=*/true);
  add(2);
  add(1);
  EXPECT_FALSE(run());
  EXPECT_TRUE(scheduler_.prefers_to_wait());

  scheduler_.overrule();
  EXPECT_FALSE(scheduler_.prefers_to_wait());
  EXPECT_TRUE(run());
  EXPECT_THAT(ran_, ElementsAre(1)) << "the first one of those that are there, and then it waits";

  add(0);
  EXPECT_TRUE(run());
  EXPECT_THAT(ran_, ElementsAre(0, 2));
}

TEST_F(PreferredOrder, HasItsPlacesForDeferredWork) {
  scheduler_.follow({{.microbatch = 0},
                     {.microbatch = 0},
                     {.microbatch = 1},
                     {.microbatch = 0, .is_deferred = true},
                     {.microbatch = 1}},
                    /*preferred=*/true);
  add(0);
  run();
  add(0, Phase::kBackward, 2);
  run();
  EXPECT_FALSE(scheduler_.may_defer()) << "the other microbatch is to come before";

  add(1);
  run();
  EXPECT_TRUE(scheduler_.may_defer());
  add(1, Phase::kBackward, 2);
  EXPECT_FALSE(run());
  do_work(0);
  EXPECT_FALSE(scheduler_.may_defer());
  EXPECT_TRUE(run());
  EXPECT_TRUE(scheduler_.may_defer()) << "at its end it forbids nothing";
}

TEST_F(PreferredOrder, DoesDeferredWorkThatKeepsRecomputedActivationsBeforeTheNextBackward) {
  for (const bool is_preferred : {true, false}) {
    scheduler_.begin_step();
    work_.clear();
    if (is_preferred) scheduler_.follow({{0}, {1}, {0}, {1}}, /*preferred=*/true);
    for (const int64_t microbatch : {0, 1}) {
      add(microbatch);
      run();
    }
    add(0, Phase::kBackward, 2);
    work_[0].recomputed = 1;
    run();
    add(1, Phase::kBackward, 2);

    EXPECT_FALSE(run());
    EXPECT_TRUE(scheduler_.may_defer());
    work_[0].recomputed = 0;
    do_work(0);
    EXPECT_TRUE(run());
    do_work(1);
    scheduler_.drop_order();
  }
}

TEST_F(PreferredOrder, HoldsUpNothingThatItDoesNotHave) {
  scheduler_.follow({{.microbatch = 5}}, /*preferred=*/true);
  add(0);
  EXPECT_FALSE(run());

  scheduler_.overrule();
  EXPECT_TRUE(run());
  EXPECT_TRUE(scheduler_.may_defer());
  EXPECT_FALSE(scheduler_.order_is_wrong());
}

TEST_F(LastRank, BeginsTheNextTaskOnTheThreadWhoseTaskHasEnded) {
  std::vector<std::thread::id> threads;
  const auto note = [&] { threads.push_back(std::this_thread::get_id()); };
  for (int64_t microbatch = 0; microbatch < 3; ++microbatch) {
    call(microbatch, Phase::kForward, kRanks, note);
  }

  run();

  EXPECT_THAT(threads, Each(threads.front()));
  EXPECT_NE(threads.front(), std::this_thread::get_id());
}

TEST_F(LastRank, GoesOnElsewhereWhileATaskIsPaused) {
  std::vector<std::string> seen;
  call(0, Phase::kForward, kRanks, [&] {
    seen.emplace_back("0 pauses");
    scheduler_.wait(7);
    seen.emplace_back("0 ends");
  });
  call(1, Phase::kForward, kRanks, [&] { seen.emplace_back("1"); });

  scheduler_.run_tasks([&] {
    EXPECT_FALSE(scheduler_.in_task());
    if (seen.size() == 2) {
      EXPECT_TRUE(scheduler_.complete(7, {}));
    }
  });

  EXPECT_THAT(seen, ElementsAre("0 pauses", "1", "0 ends"));
  EXPECT_EQ(scheduler_.tasks(), 0);
}

TEST_F(LastRank, ThrowsInTheLoopWhatATaskOrTheTimeBetweenTwoThrew) {
  call(0, Phase::kForward, kRanks, [] { throw std::runtime_error("in a task"); });
  call(1, Phase::kForward);
  call(2, Phase::kForward);
  const auto nothing = [] {};
  const auto fail = [] { throw std::runtime_error("between two"); };

  EXPECT_THAT([&] { scheduler_.run_tasks(nothing); },
              ThrowsMessage<std::runtime_error>("in a task"));
  EXPECT_THAT([&] { scheduler_.run_tasks(fail); },
              ThrowsMessage<std::runtime_error>("between two"));
  EXPECT_EQ(scheduler_.tasks(), 1);

  scheduler_.cancel_all();
  EXPECT_EQ(scheduler_.tasks(), 0);
}

TEST_F(LastRank, SetsAThreadUpAgainAfterATaskThatFailedThere) {
  int setups = 0;
  Scheduler scheduler(Schedule::kInterleaved, OpenMicrobatches({.active_microbatches = 8}, 1),
                      [&] { ++setups; });
  const auto fail = [] { throw std::runtime_error("in a task"); };
  const auto run_one = [&](const std::function<void()>& body) {
    scheduler.add({.phase = Phase::kBackward}, body);
    scheduler.run_tasks([] {});
  };
  run_one([] {});
  run_one([] {});
  EXPECT_EQ(setups, 1);
  EXPECT_THROW(run_one(fail), std::runtime_error);
  EXPECT_EQ(setups, 2);

  run_one([] {});

  EXPECT_EQ(setups, 2);
}

TEST_F(LastRank, UnwindsPausedTasksAndDropsThoseThatNeverBegan) {
  bool unwound = false;
  call(0, Phase::kForward, kRanks, [&] {
    try {
      scheduler_.wait(7);
    } catch (const TaskCancelled&) {
      unwound = true;
      throw;
    }
  });
  call(1, Phase::kForward, kRanks, [] { FAIL() << "begun after all"; });
  EXPECT_THROW(scheduler_.run_tasks([] { throw std::runtime_error("between two"); }),
               std::runtime_error);
  EXPECT_EQ(scheduler_.tasks(), 2);

  scheduler_.cancel_all();

  EXPECT_TRUE(unwound);
  EXPECT_EQ(scheduler_.tasks(), 0);
}

}  // namespace
}  // namespace smp::pipeline
