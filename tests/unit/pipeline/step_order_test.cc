// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/step_order.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

StepOrder in_a_recorded_step() {
  StepOrder order({.active_microbatches = 2}, {.deterministic = true}, /*ranks=*/2);
  order.begin_step("step", 2);
  return order;
}

TEST(StepOrder, APeersModeIsOneThatThereIs) {
  std::string bytes = RankOrder{.mode = OrderMode::kRecord}.encode();
  ASSERT_EQ(RankOrder::decode(bytes).mode, OrderMode::kRecord);

  for (const char mode : {'\x05', '\xff'}) {
    bytes.front() = mode;
    EXPECT_THAT([&] { static_cast<void>(RankOrder::decode(bytes)); },
                ThrowsMessage<InternalError>(HasSubstr("an order of mode")));
  }
}

TEST(StepOrder, APeersRunsHaveAPhaseADepthAndTimes) {
  for (const RecordedRun& run :
       {RecordedRun{.phase = -1}, RecordedRun{.phase = 7}, RecordedRun{.depth = int64_t{1} << 40},
        RecordedRun{.depth = -(int64_t{1} << 40)}, RecordedRun{.work = -1},
        RecordedRun{.deferred = int64_t{1} << 60}}) {
    StepOrder order = in_a_recorded_step();
    EXPECT_THAT(
        [&] {
          order.add_recorded(1, encode_runs({&run, 1}));
        },
        ThrowsMessage<InternalError>(HasSubstr("of a run")));
  }
}

TEST(StepOrder, IsEncodedWithItsDeferredWork) {
  const RankOrder order{.mode = OrderMode::kPreferred,
                        .work = {{.microbatch = 3}, {.microbatch = 2, .is_deferred = true}},
                        .patience = std::chrono::microseconds(1500)};

  const RankOrder read = RankOrder::decode(order.encode());

  EXPECT_EQ(read.mode, order.mode);
  EXPECT_EQ(read.work, order.work);
  EXPECT_EQ(read.patience, order.patience);
}

TEST(StepOrder, OfNoRunsThereIsNoPlan) {
  StepOrder order = in_a_recorded_step();
  order.add_recorded(1, "");

  EXPECT_THAT([&] { order.finish_step(1, std::chrono::milliseconds(1)); },
              ThrowsMessage<InternalError>(HasSubstr("0 runs")));
}

/// Steps of two ranks with one call each; those with a plan take `with`, the others 10 ms.
class PreferredSteps : public ::testing::Test {
 protected:
  OrderMode step(std::chrono::milliseconds with = std::chrono::milliseconds(8)) {
    order_.begin_step("step", 4);
    ++steps_;
    const OrderMode mode = order_.of_rank(0).mode;
    order_.finish_step(steps_,
                       mode == OrderMode::kPreferred ? with : std::chrono::milliseconds(10));
    return mode;
  }

  void tell_times(int64_t of_step) {
    const std::vector<RecordedRun> first{{.work = 1000},
                                         {.run = 3, .phase = 1, .work = 1000, .deferred = 1000}};
    std::vector<RecordedRun> second = first;
    second[0].run = 1;
    second[1].run = 2;
    for (RecordedRun& run : second) run.depth = 1;
    order_.add_times(0, of_step, first);
    order_.add_times(1, of_step, second);
  }

  StepOrder order_{{.active_microbatches = 4, .schedule = Schedule::kZeroBubble}, {}, 2};
  int64_t steps_ = 0;
};

TEST_F(PreferredSteps, ArePlannedFromTimesAndKeptWhileTheyAreShorter) {
  EXPECT_EQ(step(), OrderMode::kFree);
  EXPECT_EQ(step(), OrderMode::kTimed);
  EXPECT_EQ(step(), OrderMode::kFree);
  tell_times(2);
  std::vector<OrderMode> tried;
  for (int i = 0; i < 3; ++i) tried.push_back(step());
  const RankOrder of_first = order_.of_rank(0);
  tried.push_back(step());
  EXPECT_EQ(std::ranges::count(tried, OrderMode::kPreferred), 3);
  EXPECT_EQ(std::ranges::count(of_first.work, true, &PlannedWork::is_deferred), 4);
  EXPECT_EQ(of_first.work.size(), 12);
  EXPECT_EQ(of_first.patience, std::chrono::microseconds(2));

  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), OrderMode::kPreferred);
  for (int i = 0; i < 2; ++i) step(std::chrono::milliseconds(12));  // it has become worse
  EXPECT_EQ(step(), OrderMode::kFree);
}

TEST_F(PreferredSteps, GoWithoutAPlanThatMakesThemLonger) {
  for (int i = 0; i < 3; ++i) step();
  tell_times(2);
  for (int i = 0; i < 4; ++i) step(std::chrono::milliseconds(11));

  for (int i = 0; i < 3; ++i) EXPECT_EQ(step(), OrderMode::kFree);
}

TEST_F(PreferredSteps, AreTimedAgainWhereMicrobatchesDiffer) {
  for (int i = 0; i < 2; ++i) step();
  for (const int rank : {0, 1}) order_.add_times(rank, 2, {});

  EXPECT_EQ(step(), OrderMode::kFree);
  EXPECT_EQ(step(), OrderMode::kTimed);
  tell_times(4);
  EXPECT_EQ(step(), OrderMode::kPreferred);
}

TEST_F(PreferredSteps, ForgetTimesOfAnotherStep) {
  for (int i = 0; i < 2; ++i) step();
  tell_times(1);

  EXPECT_EQ(step(), OrderMode::kFree);
}

TEST(RunTimes, AreMeansWithTheWorkThatARunHasLeft) {
  using std::chrono::nanoseconds;
  RunTimes times;
  for (const int64_t microbatch : {1, 0}) {
    times.ran({.microbatch = microbatch, .depth = 1, .run = 1}, nanoseconds(10), 0, 0);
    times.ran({.microbatch = microbatch, .phase = schedule::Phase::kBackward, .depth = 1, .run = 2},
              nanoseconds(20 + microbatch * 10), 2, 1);
  }
  for (const int64_t microbatch : {0, 0, 1, 1}) {
    times.did_deferred(microbatch, nanoseconds(3 + microbatch * 2));
  }

  const std::vector<RecordedRun> means = times.means();

  ASSERT_EQ(means.size(), 2);
  EXPECT_EQ(means[0].work, 10);
  EXPECT_EQ(means[0].deferred, 0);
  EXPECT_EQ(means[1].work, 25);
  EXPECT_EQ(means[1].deferred, 8);
  EXPECT_EQ(means[0].recomputes, 0);
  EXPECT_EQ(means[1].recomputes, 1);

  times.ran({.microbatch = 2, .depth = 1, .run = 1}, nanoseconds(10), 0, 0);
  EXPECT_TRUE(times.means().empty()) << "microbatch 2 has one run only";
}

}  // namespace
}  // namespace smp::pipeline
