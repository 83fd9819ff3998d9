// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/scheduler.h"

#include <functional>
#include <vector>

#include <gmock/gmock.h>

namespace smp::pipeline {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kRanks = 4;
constexpr int64_t kActive = 6;

/// The last of four ranks: three microbatches may be open.
class LastRank : public ::testing::Test {
 protected:
  void call(
      int64_t microbatch, Phase phase, int64_t visit = kRanks,
      const std::function<void()>& body = [] {}) {
    scheduler_.add(
        {.microbatch = microbatch, .phase = phase, .depth = 1, .visit = visit, .ranks = kRanks - 1},
        body);
  }

  std::vector<int64_t> run() {
    const size_t before = scheduler_.trail().size();
    while (scheduler_.run_next()) {
    }
    std::vector<int64_t> ran;
    for (size_t index = before; index < scheduler_.trail().size(); ++index) {
      ran.push_back(scheduler_.trail()[index].microbatch);
    }
    return ran;
  }

  Scheduler scheduler_{Schedule::kInterleaved,
                       OpenMicrobatches(Schedule::kInterleaved, kActive, kRanks), nullptr};
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

TEST_F(LastRank, KeepsAsManyAsAFirstOneWhereMicrobatchesComeBack) {
  for (int64_t microbatch = 0; microbatch < 5; ++microbatch) call(microbatch, Phase::kForward);
  run();

  call(0, Phase::kForward, 2 * kRanks);

  EXPECT_THAT(run(), ElementsAre(0, 3, 4));
}

}  // namespace
}  // namespace smp::pipeline
