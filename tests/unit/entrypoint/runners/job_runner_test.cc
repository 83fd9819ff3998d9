// SPDX-License-Identifier: Apache-2.0
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/runners/child_command.h"

namespace entrypoint {
namespace {

using testing::ElementsAre;
using namespace std::chrono_literals;

TEST(StopSteps, GiveAProcessOurSignalAndTheKillInTheEnd) {
  EXPECT_THAT(stop_steps(Runner::kProcess, 110s),
              ElementsAre(StopStep{.after = 0ms, .signal = StopStep::kForward},
                          StopStep{.after = 110s, .signal = SIGKILL}));
}

TEST(StopSteps, StopRanksThroughMpirunBeforeMpirunItself) {
  const std::vector<StopStep> steps = stop_steps(Runner::kMpi, 110s);

  ASSERT_GT(steps.size(), 3);
  EXPECT_EQ(steps.front(), (StopStep{.after = 0ms, .signal = SIGUSR1}));
  EXPECT_EQ(steps[steps.size() - 2], (StopStep{.after = 105s, .signal = SIGTERM}));
  EXPECT_EQ(steps.back(), (StopStep{.after = 110s, .signal = SIGKILL}));
}

TEST(StopSteps, TellRanksAgainThatMayHaveBeenStarting) {
  EXPECT_THAT(
      stop_steps(Runner::kSmddp, 5s),
      ElementsAre(
          StopStep{.after = 0ms, .signal = SIGUSR1}, StopStep{.after = 500ms, .signal = SIGUSR1},
          StopStep{.after = 1s, .signal = SIGUSR1}, StopStep{.after = 2s, .signal = SIGUSR1},
          StopStep{.after = 2500ms, .signal = SIGTERM}, StopStep{.after = 5s, .signal = SIGKILL}));
}

TEST(StopSteps, KeepTheirOrderInAShortTime) {
  EXPECT_THAT(stop_steps(Runner::kMpi, 1s), ElementsAre(StopStep{.after = 0ms, .signal = SIGUSR1},
                                                        StopStep{.after = 500ms, .signal = SIGTERM},
                                                        StopStep{.after = 1s, .signal = SIGKILL}));
}

TEST(StopSteps, LeaveTorchrunAloneWhileItsWorkersStop) {
  EXPECT_THAT(stop_steps(Runner::kTorchrun, 110s),
              ElementsAre(StopStep{.after = 105s, .signal = SIGTERM},
                          StopStep{.after = 110s, .signal = SIGKILL}));
  EXPECT_EQ(stop_steps(Runner::kSmddp, 110s), stop_steps(Runner::kMpi, 110s));
  EXPECT_EQ(stop_steps(Runner::kTrainingModule, 110s), stop_steps(Runner::kProcess, 110s));
}

}  // namespace
}  // namespace entrypoint
