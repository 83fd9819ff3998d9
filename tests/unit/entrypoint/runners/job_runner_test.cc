// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/job_runner.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"
#include "entrypoint/ssh/ssh_client.h"
#include "smp_runtime/core/error.h"

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

TEST(HostName, TakesWhatTheServiceAndTheSdkWrite) {
  for (const char* host : {"algo-1", "algo-2-x7k2p", "sagemaker-local", "10.0.0.1", "a_b.c"}) {
    EXPECT_NO_THROW(check_host_name(host)) << host;
  }
}

TEST(HostName, RefusesWhatSshOrAFileNameWouldMisread) {
  for (const char* host : {"", "-oProxyCommand=x", "a b", "a/b", "..", "a\nb", "a%n", "é"}) {
    EXPECT_THROW(check_host_name(host), smp::ConfigError) << host;
  }
}

TEST(LaunchFolder, IsPrivateAndGoesWithItsOwner) {
  std::filesystem::path path;
  {
    const LaunchFolder folder;
    path = folder.path();
    const auto file = folder.write("secret", "x");
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
    EXPECT_EQ(std::filesystem::status(file).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace entrypoint
