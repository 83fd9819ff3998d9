// SPDX-License-Identifier: Apache-2.0
// Real processes and real signals; what is waited for is always an event, never a time.
#include "entrypoint/process/supervisor.h"

#include <fstream>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "entrypoint/process/spawn.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/process/outlet.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr StopStep kForwardAtOnce{.after = 0ms, .signal = StopStep::kForward};

class SupervisorTest : public testing::Test {
 protected:
  static Command shell(std::string script, Output output = Output::kStream) {
    return {.name = "script",
            .argv = {"sh", "-c", std::move(script)},
            .environment = current_environment(),
            .output = output,
            .on_stop = {kForwardAtOnce},
            .forwards_user_signals = true};
  }

  ExitStatus wait_for(ChildId child) {
    while (!supervisor_.ended(child)) {
      EXPECT_NE(supervisor_.wait(Clock::now() + 60s), Wake::kDeadline) << "it never ended";
    }
    return *supervisor_.ended(child);
  }

  // Waits until `text` is collected; the child is then known to have come that far.
  void wait_for_text(ChildId child, std::string_view text) {
    while (supervisor_.collected(child).find(text) == std::string::npos) {
      ASSERT_FALSE(supervisor_.ended(child)) << "it ended without saying " << text;
      supervisor_.wait(Clock::now() + 5ms);
    }
  }

  Outlet out_;
  Outlet err_;
  Supervisor supervisor_{Supervisor::Streams{.out = out_.fd, .err = err_.fd}};
};

TEST_F(SupervisorTest, PassesBothStreamsOnUnchanged) {
  const ChildId child =
      supervisor_.start(shell("printf ' a\\n\\n\\tb'; printf '\\303\\251x\\n' >&2"));

  EXPECT_TRUE(wait_for(child).ok());
  EXPECT_EQ(out_.text(), " a\n\n\tb");
  EXPECT_EQ(err_.text(), "\303\251x\n");
}

TEST_F(SupervisorTest, MergesWhenAsked) {
  supervisor_.merge_streams(true);

  wait_for(supervisor_.start(shell("echo x >&2")));

  EXPECT_EQ(out_.text(), "x\n");
  EXPECT_EQ(err_.text(), "");
}

TEST_F(SupervisorTest, MasksWhatItPassesOnAndWhatIsWatched) {
  std::string watched;
  supervisor_.mask_output([](std::string_view piece) {
    return piece == "secret\n" ? std::optional<std::string>("***\n") : std::nullopt;
  });
  supervisor_.watch_output(
      [&](StreamKind, const RankTag*, std::string_view piece) { watched.append(piece); });

  wait_for(supervisor_.start(shell("echo plain; echo secret")));

  EXPECT_EQ(out_.text(), "plain\n***\n");
  EXPECT_EQ(watched, out_.text());
}

TEST_F(SupervisorTest, WritesHostsIntoRankTags) {
  supervisor_.set_rank_tags(RankTags({"algo-1", "algo-2"}, 1));

  wait_for(supervisor_.start(shell("echo '[1,1]<stdout>:x'")));

  EXPECT_EQ(out_.text(), "[1,mpirank:1,algo-2]<stdout>:x\n");
}

TEST_F(SupervisorTest, LosesNothingOfALotOfOutput) {
  const ChildId child = supervisor_.start(shell("seq 200000; seq 200000 >&2"));

  EXPECT_TRUE(wait_for(child).ok());
  EXPECT_EQ(out_.text().size(), 1'288'895);
  EXPECT_EQ(err_.text(), out_.text());
}

TEST_F(SupervisorTest, TellsHowAProcessEnded) {
  EXPECT_EQ(wait_for(supervisor_.start(shell("exit 7"))), (ExitStatus{.code = 7, .signal = 0}));
  EXPECT_EQ(wait_for(supervisor_.start(shell("kill -9 $$"))),
            (ExitStatus{.code = 0, .signal = SIGKILL}));
}

TEST_F(SupervisorTest, ForwardsAStopToTheWholeGroup) {
  // The inner shell ends on the signal; the outer one only if it got it too.
  const ChildId child = supervisor_.start(shell(
      "trap 'wait; exit 3' TERM; sh -c 'trap \"exit 0\" TERM; echo up; while :; do sleep 0.01; "
      "done' & wait",
      Output::kCollect));
  wait_for_text(child, "up");

  kill(getpid(), SIGTERM);

  EXPECT_EQ(wait_for(child), (ExitStatus{.code = 3, .signal = 0}));
  EXPECT_EQ(supervisor_.stop_signal(), SIGTERM);
}

TEST_F(SupervisorTest, ForwardsUserSignalsWithoutStopping) {
  const ChildId child =
      supervisor_.start(shell("trap 'echo usr1' USR1; trap 'echo usr2; exit 0' USR2; echo up; "
                              "while :; do sleep 0.01; done",
                              Output::kCollect));
  wait_for_text(child, "up");

  kill(getpid(), SIGUSR1);
  wait_for_text(child, "usr1");
  kill(getpid(), SIGUSR2);

  EXPECT_TRUE(wait_for(child).ok());
  EXPECT_EQ(supervisor_.stop_signal(), 0);
}

TEST_F(SupervisorTest, PassesAUserSignalOnAsAnotherWhereThatIsAsked) {
  Command command = shell("trap 'echo alarm; exit 0' ALRM; echo up; while :; do sleep 0.01; done",
                          Output::kCollect);
  command.sigusr1_as = SIGALRM;
  const ChildId child = supervisor_.start(command);
  wait_for_text(child, "up");

  kill(getpid(), SIGUSR1);

  EXPECT_TRUE(wait_for(child).ok());
  EXPECT_THAT(supervisor_.collected(child), HasSubstr("alarm"));
}

TEST_F(SupervisorTest, TellsOfUserSignalsThatNoProcessTakes) {
  Command command = shell("while :; do sleep 0.01; done", Output::kCollect);
  command.forwards_user_signals = false;
  supervisor_.start(command);

  kill(getpid(), SIGUSR2);

  EXPECT_EQ(supervisor_.wait(Clock::now() + 10s), Wake::kUserSignal);
  EXPECT_EQ(supervisor_.user_signal(), SIGUSR2);
  EXPECT_EQ(supervisor_.wait(Clock::now()), Wake::kDeadline);
}

TEST_F(SupervisorTest, KillsWhoeverIgnoresTheStop) {
  Command command = shell("trap '' TERM; echo up; while :; do sleep 0.01; done", Output::kCollect);
  command.on_stop = {kForwardAtOnce, {.after = 50ms, .signal = SIGKILL}};
  const ChildId child = supervisor_.start(command);
  wait_for_text(child, "up");

  kill(getpid(), SIGTERM);

  EXPECT_EQ(wait_for(child).signal, SIGKILL);
}

TEST_F(SupervisorTest, ReportsAStopOnce) {
  kill(getpid(), SIGTERM);

  EXPECT_EQ(supervisor_.wait(Clock::now() + 10s), Wake::kStopRequested);
  EXPECT_EQ(supervisor_.wait(Clock::now()), Wake::kDeadline);
}

TEST_F(SupervisorTest, AdoptsAndReapsOrphans) {
  // The orphan's parent is gone when it ends; it must not stay behind as a zombie.
  const ChildId child =
      supervisor_.start(shell("(sh -c 'echo $$; exit 0' &) ; exit 0", Output::kCollect));
  wait_for(child);

  supervisor_.sweep(1s);

  EXPECT_TRUE(descendants(getpid()).empty());
}

TEST_F(SupervisorTest, SweepsDaemonsThatTheJobLeft) {
  const ChildId child = supervisor_.start(
      shell("setsid sh -c 'trap \"\" TERM; echo up >&2; while :; do sleep 0.01; done' "
            ">/dev/null & read line; exit 0",
            Output::kCollect));
  wait_for_text(child, "up");
  wait_for(child);

  supervisor_.sweep(20ms);

  EXPECT_TRUE(descendants(getpid()).empty());
}

TEST_F(SupervisorTest, DoesNotWaitForADaemonThatHoldsThePipes) {
  const ChildId child = supervisor_.start(shell("sleep 1000 & echo done"));

  EXPECT_TRUE(wait_for(child).ok());

  EXPECT_EQ(out_.text(), "done\n");
}

TEST_F(SupervisorTest, RunsAHelperAndGivesItsAnswer) {
  const ChildId good = supervisor_.start({.name = "good", .work = [] { return "answer"; }});
  const ChildId bad = supervisor_.start(
      {.name = "bad", .work = []() -> std::string { throw smp::HostError("no route"); }});

  EXPECT_TRUE(wait_for(good).ok());
  EXPECT_EQ(supervisor_.collected(good), "answer");
  EXPECT_EQ(wait_for(bad).code, 1);
  EXPECT_EQ(supervisor_.collected(bad), "no route");
}

TEST_F(SupervisorTest, EndsAHelperThatHangs) {
  const ChildId helper = supervisor_.start({.name = "hangs", .work = [] {
                                              pause();
                                              return "";
                                            }});

  supervisor_.send(helper, SIGKILL);

  EXPECT_EQ(wait_for(helper).signal, SIGKILL);
}

TEST_F(SupervisorTest, ShowsItsWatcherWhatIsStreamed) {
  std::string seen;
  supervisor_.watch_output([&](StreamKind kind, const RankTag*, std::string_view piece) {
    seen.append(kind == StreamKind::kErr ? "err " : "out ").append(piece);
  });

  wait_for(supervisor_.start(shell("echo a; echo b >&2")));

  EXPECT_THAT(seen, HasSubstr("out a\n"));
  EXPECT_THAT(seen, HasSubstr("err b\n"));
}

TEST(SupervisorSignals, AreAsBeforeWhenItIsGone) {
  sigset_t before;
  sigset_t after;
  sigprocmask(SIG_SETMASK, nullptr, &before);
  { const Supervisor supervisor; }
  sigprocmask(SIG_SETMASK, nullptr, &after);

  EXPECT_EQ(sigismember(&before, SIGTERM), sigismember(&after, SIGTERM));
}

TEST(SupervisorOutput, KeepsSignalsQuickWhenItsReaderIsStuck) {
  Pipe pipe = make_pipe();  // nobody reads it
  Supervisor supervisor(Supervisor::Streams{.out = pipe.write.get(), .err = pipe.write.get()});
  const ChildId child = supervisor.start({.name = "chatty",
                                          .argv = {"sh", "-c", "while :; do echo xxxxxxxx; done"},
                                          .environment = current_environment(),
                                          .output = Output::kStream,
                                          .on_stop = {kForwardAtOnce}});
  // Runs until the sink is full and the child blocks on its pipe.
  while (supervisor.wait(Clock::now() + 100ms) != Wake::kDeadline) {
  }

  kill(getpid(), SIGTERM);
  EXPECT_EQ(supervisor.wait(Clock::now() + 10s), Wake::kStopRequested);
  pipe.read.close();  // now writes fail at once and the output is dropped
  while (!supervisor.ended(child)) {
    ASSERT_EQ(supervisor.wait(Clock::now() + 60s), Wake::kChildEnded);
  }

  EXPECT_EQ(supervisor.ended(child)->signal, SIGTERM);
}

}  // namespace
}  // namespace entrypoint
