// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/failure_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job/failure/tagged_piece.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

std::string algo_of(int rank) { return rank < 2 ? "algo-1" : "algo-2"; }

OutputRecord record_of(std::initializer_list<const char*> lines) {
  OutputRecord record;
  for (const std::string line : lines) add(record, StreamKind::kErr, line + "\n");
  return record;
}

TEST(FailureText, StartsWithTheFiveLinesThatToolsParse) {
  const OutputRecord record =
      record_of({"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
                 "    raise ValueError('boom')", "ValueError: boom"});

  const std::string text = failure_text(
      {.status = {.code = 1, .signal = 0}, .command = "python3 -- train.py"}, record, algo_of);

  EXPECT_THAT(text, StartsWith("ExecuteUserScriptError:\n"
                               "ExitCode 1\n"
                               "ErrorMessage \"ValueError: boom\n"
                               "  File \"train.py\", line 3, in <module>\n"
                               "    raise ValueError('boom')\"\n"
                               "Command \"python3 -- train.py\"\n"));
}

TEST(FailureText, NamesTheFailingRankAndItsHostFirst) {
  const OutputRecord record = record_of(
      {"[1,0]<stderr>:Traceback (most recent call last):", "[1,0]<stderr>:OSError: peer gone",
       "[1,3]<stderr>:Traceback (most recent call last):", "[1,3]<stderr>:ValueError: boom",
       "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD"});

  const std::string text =
      failure_text({.status = {.code = 1, .signal = 0}, .command = "mpirun"}, record, algo_of);

  EXPECT_THAT(text, HasSubstr("ErrorMessage \"rank 3 on algo-2: ValueError: boom\"\n"));
  EXPECT_LT(text.find("Traceback of rank 3 on algo-2:"), text.find("Traceback of rank 0"));
}

TEST(FailureText, NamesTheRankThatFailedAndNotTheOneThatLostIt) {
  const OutputRecord record = record_of(
      {"[1,0]<stderr>:Traceback (most recent call last):",
       "[1,0]<stderr>:smdistributed.modelparallel.backend.exceptions.SMPConnectionError: rank 1 is "
       "lost",
       "[1,1]<stderr>:Traceback (most recent call last):", "[1,1]<stderr>:ValueError: boom",
       "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD"});

  const std::string text =
      failure_text({.status = {.code = 1, .signal = 0}, .command = "mpirun"}, record, algo_of);

  EXPECT_THAT(text, StartsWith("ExecuteUserScriptError:\n"));
  EXPECT_THAT(text, HasSubstr("ErrorMessage \"rank 1 on algo-1: ValueError: boom\"\n"));
}

TEST(FailureText, HasCauseThenTextThenPlace) {
  const OutputRecord record = record_of(
      {"Traceback (most recent call last):", "  File \"options.py\", line 3, in read",
       "KeyError: 'lr'", "The above exception was the direct cause of the following exception:",
       "Traceback (most recent call last):", "  File \"train.py\", line 7, in <module>",
       "    read()", "RuntimeError: the options are incomplete:", "\tlr is missing"});

  const std::string text =
      failure_text({.status = {.code = 1, .signal = 0}, .command = "x"}, record, algo_of);

  EXPECT_THAT(text, HasSubstr("ErrorMessage \"KeyError: 'lr'\n"
                              "led to RuntimeError: the options are incomplete:\n"
                              "\tlr is missing\n"
                              "  File \"train.py\", line 7, in <module>\n"
                              "    read()\"\n"));
}

TEST(FailureText, SaysOnceWhatTheExceptionQuotesOfItsCause) {
  const OutputRecord record = record_of(
      {"Traceback (most recent call last):", "KeyError: 'lr'",
       "The above exception was the direct cause of the following exception:",
       "Traceback (most recent call last):", "ReadError: failed finding central directory",
       "The above exception was the direct cause of the following exception:",
       "Traceback (most recent call last):",
       "smp.SMPCheckpointError: cannot read a.pt: ReadError: failed finding central directory"});

  const std::string text =
      failure_text({.status = {.code = 1, .signal = 0}, .command = "x"}, record, algo_of);

  EXPECT_THAT(text,
              HasSubstr("ErrorMessage \"KeyError: 'lr'\nled to smp.SMPCheckpointError: cannot "
                        "read a.pt: ReadError: failed finding central directory\"\n"));
}

TEST(FailureText, HasTheCommandWithinTheBytesThatAreShown) {
  OutputRecord record;
  add(record, StreamKind::kErr, "Traceback (most recent call last):\n");
  for (int i = 0; i < 50; ++i)
    add(record, StreamKind::kErr, "  a frame of some forty bytes or so\n");
  add(record, StreamKind::kErr, "ValueError: " + std::string(1000, 'v') + "\n");
  const std::string command(5000, 'c');

  const std::string text = failure_text(
      {.status = {.code = 137, .signal = 0}, .out_of_memory = true, .command = command}, record,
      algo_of);

  const std::string shown = text.substr(0, 1024);
  EXPECT_THAT(shown,
              HasSubstr("ErrorMessage \"killed by SIGKILL (signal 9)\nearlier: ValueError: vvv"));
  EXPECT_THAT(shown, HasSubstr("ExtraInfo \"OutOfMemory: Process killed by SIGKILL (signal 9)"));
  EXPECT_THAT(shown, HasSubstr("\nCommand \"ccc"));
  EXPECT_THAT(shown, HasSubstr("ccc...\"\n"));
  EXPECT_THAT(text, HasSubstr("The whole command:\n" + command));
}

TEST(FailureText, SaysOutOfMemoryOnlyWhenThatIsNotRuledOut) {
  const ExitStatus killed{.code = 0, .signal = SIGKILL};
  const auto text = [&](std::optional<bool> out_of_memory) {
    return failure_text({.status = killed, .out_of_memory = out_of_memory, .command = "x"}, {},
                        algo_of);
  };

  EXPECT_THAT(text(true), HasSubstr("ExitCode -9\n"));
  EXPECT_THAT(text(true), HasSubstr("\"OutOfMemory: Process killed by SIGKILL (signal 9); the"));
  EXPECT_THAT(text(std::nullopt),
              HasSubstr("\"OutOfMemory: Process killed by SIGKILL (signal 9)\"\n"));
  EXPECT_THAT(text(false), Not(HasSubstr("OutOfMemory")));
}

TEST(FailureText, ShowsTheLastWordsWhenNothingBetterIsThere) {
  const std::string text = failure_text({.status = {.code = 2, .signal = 0}, .command = "sh"},
                                        record_of({"first", "last"}), algo_of);

  EXPECT_THAT(text, HasSubstr("ErrorMessage \"first\nlast\"\n"));
}

std::string message_of(std::initializer_list<const char*> lines) {
  const std::string text =
      failure_text({.status = {.code = 1, .signal = 0}, .command = "x"}, record_of(lines), algo_of);
  const std::size_t begin = text.find("ErrorMessage \"") + 14;
  return text.substr(begin, text.find("\"\nCommand \"") - begin);
}

TEST(FailureText, AlwaysHasAMessage) {
  EXPECT_EQ(message_of({}), "it ended without having written anything");
}

TEST(FailureText, LeadsWithAnErrorThatHasNoTraceback) {
  EXPECT_THAT(message_of({"  File \"train.py\", line 1", "    x =", "SyntaxError: invalid syntax"}),
              StartsWith("SyntaxError: invalid syntax\n  File \"train.py\", line 1\n"));
  EXPECT_THAT(message_of({"ERROR: No matching distribution found for nope",
                          "[notice] A new release of pip is available"}),
              StartsWith("ERROR: No matching distribution found for nope\n"));
}

TEST(FailureText, DoesNotTakeAHandledErrorOfOneRankForTheEndOfAnother) {
  EXPECT_THAT(
      message_of({"[1,0]<stderr>:Traceback (most recent call last):",
                  "[1,0]<stderr>:OSError: retried", "[1,2]<stderr>:step 17",
                  "mpirun noticed that process rank 2 with PID 0 on node algo-2 exited on signal 9 "
                  "(Killed)."}),
      StartsWith("rank 2 on algo-2: killed by SIGKILL (signal 9)\nstep 17"));
}

TEST(FailureText, PutsARanksOwnWordsBeforeMpiruns) {
  EXPECT_THAT(message_of({"[1,1]<stderr>:cannot read the data set",
                          "mpirun detected that one or more processes exited with non-zero status",
                          "  Process name: [[60263,1],1]"}),
              StartsWith("rank 1 on algo-1: cannot read the data set"));
}

TEST(FailureText, NamesTheErrorOfALibrary) {
  const auto first_line = [](const char* exception) {
    const std::string text =
        failure_text({.status = {.code = 1, .signal = 0}},
                     record_of({"Traceback (most recent call last):", exception}), algo_of);
    return text.substr(0, text.find('\n'));
  };

  EXPECT_EQ(first_line("smdistributed.modelparallel.torch.exceptions.SMPStepError: twice"),
            "SMPStepError:");
  EXPECT_EQ(first_line("tensorflow.python.framework.errors_impl.NotFoundError: x"),
            "NotFoundError:");
  EXPECT_EQ(first_line("torch.OutOfMemoryError: CUDA out of memory"), "ExecuteUserScriptError:");
}

TEST(FailureText, SaysThatADiskIsFull) {
  EXPECT_THAT(
      failure_text(
          {.status = {.code = 1, .signal = 0}, .full_disks = "/opt/ml 0 bytes", .command = "x"}, {},
          algo_of),
      HasSubstr("ExtraInfo \"Disk full: /opt/ml 0 bytes\"\n"));
}

TEST(FailureText, SaysWhichChannelsThereAre) {
  const OutputRecord record =
      record_of({"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
                 "KeyError: 'SM_CHANNEL_TRAINING'"});
  const ExitStatus failed{.code = 1, .signal = 0};

  EXPECT_THAT(failure_text({.status = failed, .channels = {"test", "train"}}, record, algo_of),
              HasSubstr("ExtraInfo \"The job's channels are test, train\"\n"));
  EXPECT_THAT(failure_text({.status = failed}, record, algo_of),
              HasSubstr("ExtraInfo \"The job has no channels: --channel"));
}

TEST(FailureText, AdvisesOnErrorsThatTellLessThanIsKnown) {
  const auto text = [](std::initializer_list<const char*> lines) {
    return failure_text({.status = {.code = 2, .signal = 0}}, record_of(lines), algo_of);
  };

  EXPECT_THAT(text({"usage: train.py [-h]", "train.py: error: unrecognized arguments: --epochs 3"}),
              HasSubstr("use parser.parse_known_args()"));
  EXPECT_THAT(
      text({"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
            "RuntimeError: Found no NVIDIA driver on your system."}),
      HasSubstr("SMP_CPU=1"));
  EXPECT_THAT(text({"Traceback (most recent call last):", "ValueError: boom"}),
              Not(HasSubstr("ExtraInfo")));
}

TEST(FailureText, NamesTheHostWhoseDaemonMpirunLost) {
  const std::initializer_list<const char*> mpiruns = {
      "--------------------------------------------------------------------------",
      "ORTE has lost communication with a remote daemon.",
      "  HNP daemon   : [[46031,0],0] on node algo-1",
      "  Remote daemon: [[46031,0],1] on node algo-2",
      "This is usually due to either a failure of the TCP network"};
  const Failure failure{.status = {.code = 1, .signal = 0}, .is_mpirun = true};

  EXPECT_THAT(failure_text(failure, record_of(mpiruns), algo_of),
              HasSubstr("ErrorMessage \"host algo-2 is lost: "));

  OutputRecord with_cause = record_of(
      {"[1,0]<stderr>:Traceback (most recent call last):", "[1,0]<stderr>:ValueError: boom"});
  for (const char* line : mpiruns) {
    with_cause.add(StreamKind::kErr, nullptr, std::string(line) + "\n");
  }
  EXPECT_THAT(failure_text(failure, with_cause, algo_of),
              HasSubstr("ErrorMessage \"rank 0 on algo-1: ValueError"));
}

TEST(FailureText, TakesNoExitCodeForASignalThatNobodySent) {
  const Failure failure{.status = {.code = 131, .signal = 0}, .command = "mpirun"};

  EXPECT_THAT(failure_text(failure, record_of({"ORTE does not know"}), algo_of),
              Not(HasSubstr("ExtraInfo")));
  EXPECT_THAT(
      failure_text(failure,
                   record_of({"mpirun noticed that process rank 1 with PID 0 on node algo-1 exited "
                              "on signal 3 (Quit)."}),
                   algo_of),
      HasSubstr("ExtraInfo \"Process killed by SIGQUIT (signal 3)\""));
}

TEST(FailureText, LooksForTheDebuggersErrorsUnlessItIsSwitchedOff) {
  const OutputRecord record = record_of(
      {"Traceback (most recent call last):", "smdebug.exceptions.LossNotDecreasing: step 3"});
  Failure failure{.status = {.code = 1, .signal = 0}, .command = "x"};

  EXPECT_THAT(failure_text(failure, record, algo_of), StartsWith("LossNotDecreasing:\n"));
  failure.debugger = false;
  EXPECT_THAT(failure_text(failure, record, algo_of), StartsWith("ExecuteUserScriptError:\n"));
}

TEST(FailureText, PrefersTellingLinesToChatter) {
  const std::string text =
      failure_text({.status = {.code = 134, .signal = 0}, .command = "sh"},
                   record_of({"terminate called after throwing 'c10::Error'", "bye"}), algo_of);

  EXPECT_THAT(text, HasSubstr("ErrorMessage \"terminate called after throwing 'c10::Error'\"\n"));
  EXPECT_THAT(text, HasSubstr("ExtraInfo \"Process killed by SIGABRT (signal 6)\""));
}

}  // namespace
}  // namespace entrypoint
