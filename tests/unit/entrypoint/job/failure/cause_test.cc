// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/cause.h"

#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job/failure/tagged_piece.h"

namespace entrypoint {
namespace {

using testing::StartsWith;

constexpr const char* kBlocksHeader = "Traceback (most recent call last):";
constexpr const char* kModule = "  File \"train.py\", line 9, in <module>";
constexpr const char* kHandled = "  File \"train.py\", line 19, in log_handled";

using Lines = std::vector<std::string>;

void feed(OutputRecord& record, StreamKind kind, const Lines& lines) {
  for (const std::string& line : lines) add(record, kind, line + "\n");
}

OutputRecord record_of(const Lines& err, const Lines& out = {}) {
  OutputRecord record;
  feed(record, StreamKind::kErr, err);
  feed(record, StreamKind::kOut, out);
  return record;
}

/// The headline, or the exception that stands in its place.
std::string headline_of(const ProgramEnd& end, const OutputRecord& record) {
  const Cause cause = find_cause(end, record);
  return cause.traceback != nullptr ? std::string(cause.traceback->exception()) : cause.headline;
}

constexpr ProgramEnd kCode1{.status = {.code = 1, .signal = 0}};
constexpr ProgramEnd kMpirunsCode1{.status = {.code = 1, .signal = 0}, .is_mpirun = true};

Lines torchruns_table(const std::string& exit_code) {
  return {kBlocksHeader,
          "  File \"/opt/venv/bin/torchrun\", line 10, in <module>",
          "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
          "============================================================",
          "end.py FAILED",
          "------------------------------------------------------------",
          "Root Cause (first observed failure):",
          "[0]:",
          "  rank      : 1 (local_rank: 1)",
          "  exitcode  : " + exit_code + " (pid: 19116)",
          "============================================================"};
}

TEST(Cause, OfTorchrunsWorkerIsInItsTable) {
  Lines killed{"loading"};
  const Lines table = torchruns_table("-9");
  killed.insert(killed.end(), table.begin(), table.end());
  const OutputRecord record = record_of(killed);

  const Cause cause = find_cause(kCode1, record);

  EXPECT_EQ(cause.rank, 1);
  EXPECT_EQ(cause.headline, "killed by SIGKILL (signal 9)");
  EXPECT_EQ(cause.context, "loading");
  EXPECT_EQ(cause.signal, SIGKILL);
  EXPECT_EQ(headline_of(kCode1, record_of(torchruns_table("7"))), "exit code 7");
}

TEST(Cause, OfTorchrunsWorkerIsItsTracebackAndNotTheReport) {
  Lines raised{kBlocksHeader, kModule, "ValueError: no samples"};
  const Lines table = torchruns_table("1");
  raised.insert(raised.end(), table.begin(), table.end());

  EXPECT_EQ(headline_of(kCode1, record_of(raised)), "ValueError: no samples");
}

TEST(Cause, IsNotATracebackThatTheScriptWentOnFrom) {
  const Lines handled{kBlocksHeader, kHandled, "ConnectionError: no server"};
  const auto then = [&](const char* words) {
    Lines lines = handled;
    lines.emplace_back(words);
    return lines;
  };
  const Lines steps(50, "step 7: loss 0.5");

  const OutputRecord text = record_of(then("validation loss is nan"), steps);
  EXPECT_EQ(find_cause(kCode1, text).headline, "validation loss is nan");
  EXPECT_EQ(find_cause(kCode1, text).context, "earlier: ConnectionError: no server");
  EXPECT_EQ(headline_of({.status = {.code = 3, .signal = 0}},
                        record_of(then("ERROR: validation loss is nan"), steps)),
            "ERROR: validation loss is nan");
  EXPECT_THAT(headline_of({.status = {.code = 0, .signal = SIGABRT}},
                          record_of(then("terminate called after throwing an instance of 'X'"))),
              StartsWith("terminate called"));
  EXPECT_EQ(headline_of({.status = {.code = 0, .signal = SIGKILL}}, record_of(handled, steps)),
            "killed by SIGKILL (signal 9)");
}

TEST(Cause, IsATracebackBeforeTheNoiseOfAnExit) {
  const Lines uncaught{kBlocksHeader, kModule, "ValueError: boom"};
  Lines noisy = uncaught;
  noisy.emplace_back("wandb: Run summary:");

  EXPECT_EQ(headline_of(kCode1, record_of(noisy)), "ValueError: boom");
  // Python prints what it buffered of stdout behind the traceback.
  EXPECT_EQ(headline_of(kCode1, record_of(uncaught, Lines(50, "step 7: loss 0.5"))),
            "ValueError: boom");
  EXPECT_THAT(headline_of(kCode1, record_of(uncaught, Lines(5000, "step 7: loss 0.5"))),
              StartsWith("step 7: loss 0.5\n"));
}

TEST(Cause, OfARankIsWhatEndedIt) {
  const OutputRecord killed = record_of({std::string("[1,0]<stderr>:") + kBlocksHeader,
                                         "[1,0]<stderr>:OSError: retried", "[1,2]<stderr>:step 17",
                                         "mpirun noticed that process rank 2 with PID 0 on node "
                                         "algo-2 exited on signal 9 (Killed)."});

  const Cause cause = find_cause(kMpirunsCode1, killed);
  EXPECT_EQ(cause.rank, 2);
  EXPECT_EQ(cause.headline, "killed by SIGKILL (signal 9)");

  const Cause line = find_cause(
      kMpirunsCode1, record_of({"[1,1]<stderr>:ValueError: no samples", "[1,0]<stderr>:waiting"}));
  EXPECT_EQ(line.rank, 1);
  EXPECT_EQ(line.headline, "ValueError: no samples");
}

TEST(Cause, OfARankInTerminateIsSigabrtWithoutMpirunsWord) {
  const ProgramEnd end{.status = {.code = 134, .signal = 0}, .is_mpirun = true};
  const Cause cause =
      find_cause(end, record_of({"[1,1]<stderr>:terminate called after throwing an instance of 'E'",
                                 "[1,1]<stderr>:  what():  no data", "[1,0]<stderr>:waiting"}));
  EXPECT_EQ(cause.rank, 1);
  EXPECT_EQ(cause.signal, SIGABRT);

  EXPECT_EQ(find_cause(end, record_of({"[1,1]<stderr>:ValueError: no samples"})).signal, 0);
}

TEST(Cause, OfMpirunsRefusalIsItsFirstBox) {
  const std::string rule(74, '-');
  OutputRecord record;
  record.expect_mpirun();
  feed(
      record, StreamKind::kErr,
      {rule, "A call to mkdir was unable to create the desired directory:", "",
       "  Directory: /nowhere/ompi", rule, "[algo-1:7] [[1,0],0] ORTE_ERROR_LOG: Error in file x.c",
       rule, "It looks like orte_init failed", rule});

  EXPECT_EQ(headline_of(kMpirunsCode1, record),
            "A call to mkdir was unable to create the desired directory:\n"
            "  Directory: /nowhere/ompi");
  EXPECT_EQ(ending_signal({.status = {.code = 134, .signal = 0}, .is_mpirun = true}), 0);
  EXPECT_EQ(ending_signal({.status = {.code = 134, .signal = 0}}), SIGABRT);
}

TEST(Cause, OfPipIsTheProgramBelowIt) {
  const ProgramEnd pips{.status = {.code = 1, .signal = 0}, .installs = true};
  const Lines summary{
      "  note: This error originates from a subprocess, and is likely not a problem",
      "ERROR: Failed building wheel for pkg", "error: failed-wheel-build-for-install"};
  for (const char* error :
       {"bad.c:1:10: fatal error: not_there.h: No such file or directory",
        "CMake Error at CMakeLists.txt:3 (find_package):", "/usr/bin/ld: cannot find -lnope",
        "error[E0432]: unresolved import `nope`"}) {
    Lines lines{"  exit code: 1", "  [9 lines of output]", std::string("      ") + error,
                "      error: command '/usr/bin/gcc' failed with exit code 1"};
    lines.insert(lines.end(), summary.begin(), summary.end());
    EXPECT_EQ(headline_of(pips, record_of(lines)), error);
  }
  EXPECT_EQ(headline_of(pips, record_of({"ERROR: Could not find a version of nope",
                                         "ERROR: No matching distribution found for nope"})),
            "ERROR: No matching distribution found for nope");
  Lines raised{"  [9 lines of output]", std::string("      ") + kBlocksHeader,
               "        File \"setup.py\", line 1, in <module>", "      RuntimeError: no CUDA_HOME",
               "      [end of output]"};
  raised.insert(raised.end(), summary.begin(), summary.end());
  EXPECT_EQ(headline_of(pips, record_of(raised)), "RuntimeError: no CUDA_HOME");
}

TEST(Cause, IsTheChildsWhereAParentOnlyReportsIt) {
  const auto parents = [](const char* exception) {
    return Lines{kBlocksHeader, "  File \"parent.py\", line 3, in <module>", exception};
  };

  EXPECT_EQ(headline_of(kCode1, record_of(parents("subprocess.CalledProcessError: Command 'x' died "
                                                  "with <Signals.SIGKILL: 9>."))),
            "a program that the script started ended: killed by SIGKILL (signal 9)");
  Lines lines{"child: error: no data"};
  const Lines parent =
      parents("subprocess.CalledProcessError: Command 'x' returned non-zero exit status 2.");
  lines.insert(lines.end(), parent.begin(), parent.end());
  EXPECT_EQ(headline_of(kCode1, record_of(lines)), "child: error: no data");
}

TEST(Cause, StandsBehindProgressBars) {
  OutputRecord record;
  feed(record, StreamKind::kErr, {"best model not found"});
  for (int i = 0; i < 400; ++i) add(record, StreamKind::kErr, " 10%|#         | 40/400 [00:01]\r");
  feed(record, StreamKind::kErr, {"100%|##########| 400/400 [00:01, 99.21it/s]"});

  EXPECT_EQ(headline_of({.status = {.code = 4, .signal = 0}}, record), "best model not found");
}

TEST(HiddenError, IsOneThatNobodyCaughtBelowAScriptThatEndedWell) {
  const Lines uncaught{kBlocksHeader, kModule, "RuntimeError: boom"};
  const Lines handled{kBlocksHeader, kHandled, "ConnectionError: no server"};
  Lines went_on = uncaught;
  went_on.insert(went_on.end(), 20, "training goes on");

  EXPECT_EQ(hidden_error(record_of(uncaught), "run.sh"), "RuntimeError: boom");
  EXPECT_EQ(hidden_error(record_of(uncaught), "train.py"), std::nullopt);
  EXPECT_EQ(hidden_error(record_of(handled), "run.sh"), std::nullopt);
  EXPECT_EQ(hidden_error(record_of(went_on), "run.sh"), std::nullopt);
}

}  // namespace
}  // namespace entrypoint
