// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/spawn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using namespace std::chrono_literals;

SpawnRequest shell(std::string script) {
  return {.argv = {"sh", "-c", std::move(script)}, .environment = {"PATH=/usr/bin:/bin", "A=b c"}};
}

template <typename Failing>
std::string message_of(Failing failing) {
  try {
    failing();
  } catch (const smp::ConfigError& error) {
    return error.what();
  }
  return "no ConfigError";
}

TEST(Spawn, GivesArgumentsAndEnvironmentUntouched) {
  const Completed done = run_command(shell("printf '%s|' \"$A\" \"$0\"; env | wc -l >&2"), 10s);

  EXPECT_TRUE(done.status.ok());
  EXPECT_THAT(done.output, StartsWith("b c|sh|"));
}

TEST(Spawn, FeedsStandardInput) {
  EXPECT_EQ(run_command(shell("cat"), 10s, "hello\n").output, "hello\n");
}

TEST(Spawn, TellsExitCodesFromSignals) {
  EXPECT_EQ(run_command(shell("exit 7"), 10s).status, (ExitStatus{.code = 7, .signal = 0}));
  const ExitStatus killed = run_command(shell("kill -9 $$"), 10s).status;
  EXPECT_EQ(killed.failure_code(), -9);
  EXPECT_EQ(killed.shell_code(), 137);
}

TEST(Spawn, LeadsItsOwnGroupWithNoSignalBlockedOrIgnored) {
  sigset_t set;
  sigset_t before;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_BLOCK, &set, &before);
  signal(SIGPIPE, SIG_IGN);

  // The shell itself becomes grep: one that forks blocks signals for a moment.
  const Completed done = run_command(
      shell("cut -d' ' -f5 /proc/$$/stat; echo $$; exec grep -E 'SigBlk|SigIgn' /proc/self/status"),
      10s);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGPIPE, SIG_DFL);

  EXPECT_THAT(done.output, HasSubstr("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n"));
  const std::size_t line_end = done.output.find('\n');
  const std::string group = done.output.substr(0, line_end + 1);
  EXPECT_THAT(done.output.substr(line_end + 1), testing::StartsWith(group));
}

TEST(Spawn, ReportsAMissingProgramWithItsPath) {
  EXPECT_EQ(
      message_of([] { spawn({.argv = {"no-such-program"}, .environment = {"PATH=/usr/bin"}}); }),
      "program \"no-such-program\" is not on PATH (/usr/bin); install it or correct PATH");
}

TEST(Spawn, ReportsAFolderThatIsMissing) {
  EXPECT_THAT(message_of([] {
                SpawnRequest request = shell("true");
                request.working_directory = "/no/such/folder";
                spawn(request);
              }),
              HasSubstr("in /no/such/folder: No such file or directory"));
}

TEST(Spawn, LetsAProgramIgnoreSignalsUntilItAsksForThem) {
  SpawnRequest request = shell("kill -USR1 $$; echo alive; kill -USR2 $$; echo never");
  request.ignored_signals = {SIGUSR1};

  const Completed done = run_command(request, 60s);

  EXPECT_EQ(done.output, "alive\n");
  EXPECT_EQ(done.status.signal, SIGUSR2);
}

TEST(Spawn, KillsWhatOutlivesItsLimit) {
  // The output is closed, so only the limit can end the wait.
  const Completed done = run_command(shell("exec >&- 2>&-; sleep 1000"), 50ms);

  EXPECT_TRUE(done.timed_out);
  EXPECT_EQ(done.status.signal, SIGKILL);
}

TEST(Environment, LooksUpWholeNames) {
  const std::vector<std::string> environment = {"PATHS=x", "PATH=y=z"};

  EXPECT_EQ(value_of(environment, "PATH"), "y=z");
  EXPECT_EQ(value_of(environment, "PAT"), "");
}

}  // namespace
}  // namespace entrypoint
