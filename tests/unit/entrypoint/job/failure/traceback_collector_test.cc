// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/traceback_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kHeader = "Traceback (most recent call last):";

TracebackCollector fed(std::initializer_list<const char*> lines) {
  TracebackCollector collector;
  for (const char* line : lines) collector.add(line);
  return collector;
}

Traceback collected(std::initializer_list<const char*> lines) { return fed(lines).last(); }

TEST(TracebackCollector, TakesAPlainBlock) {
  EXPECT_THAT(
      collected({"noise", kHeader, "  File \"a.py\", line 1", "    f()", "KeyError: 1", "x"}).lines,
      ElementsAre(kHeader, "  File \"a.py\", line 1", "    f()", "KeyError: 1"));
}

TEST(TracebackCollector, TakesTorchsPrefixOff) {
  const Traceback found =
      collected({"[rank3]: Traceback (most recent call last):", "[rank3]:   File \"a.py\", line 1",
                 "[rank3]:     f()", "[rank3]: ValueError: boom", "[rank3]:[W1] warning"});

  EXPECT_THAT(found.lines,
              ElementsAre(kHeader, "  File \"a.py\", line 1", "    f()", "ValueError: boom"));
  EXPECT_EQ(found.exception(), "ValueError: boom");
}

TEST(TracebackCollector, FindsWhatADataLoadersWorkerRaised) {
  const Traceback found = collected(
      {"[rank1]: Traceback (most recent call last):", "[rank1]:   File \"train.py\", line 3",
       "[rank1]: KeyError: Caught KeyError in DataLoader worker process 0.",
       "[rank1]: Original Traceback (most recent call last):",
       "[rank1]:   File \"data.py\", line 7, in __getitem__", "[rank1]: KeyError: 'label'",
       "[rank1]: "});

  EXPECT_EQ(found.exception(), "KeyError: 'label'");
  EXPECT_THAT(found.lines, Contains(HasSubstr("data.py")));
}

TEST(TracebackCollector, TakesPipsIndentationOff) {
  EXPECT_EQ(collected({"  x python setup.py egg_info did not run successfully.", "  exit code: 1",
                       "      Traceback (most recent call last):",
                       "        File \"setup.py\", line 1", "      RuntimeError: no compiler",
                       "      [end of output]", "error: metadata-generation-failed"})
                .exception(),
            "RuntimeError: no compiler");
}

TEST(TracebackCollector, ReadsTheFormsOfLoggingPackages) {
  for (
      const char* line :
      {R"({"level": "ERROR", "exc_info": "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\nKeyError: 'label'"})",
       R"({"exc_type": "KeyError", "exc_value": "'label'"})",
       R"(level=error exc="Traceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'label'")"}) {
    EXPECT_EQ(collected({line}).exception(), "KeyError: 'label'") << line;
  }
  EXPECT_THAT(collected({R"({"type": "step", "message": "done"})"}).lines, IsEmpty());
  // loguru marks the frame that caught; rich draws a box.
  EXPECT_EQ(
      collected({kHeader, "> File \"a.py\", line 1, in <module>", "    f()", "KeyError: 'label'"})
          .exception(),
      "KeyError: 'label'");
  EXPECT_EQ(
      collected({"╭──────── Traceback (most recent call last) ────────╮",
                 "│ /job/a.py:7 in load                               │",
                 "╰───────────────────────────────────────────────────╯", "KeyError: 'label'"})
          .exception(),
      "KeyError: 'label'");
}

TEST(TracebackCollector, TakesALoggersPrefixOffTheFirstLine) {
  EXPECT_EQ(collected({"ERROR:root:Traceback (most recent call last):", "  File \"a.py\", line 1",
                       "OSError: gone"})
                .exception(),
            "OSError: gone");
}

TEST(TracebackCollector, FindsTheCauseInAnExceptionGroup) {
  EXPECT_EQ(collected({"  + Exception Group Traceback (most recent call last):",
                       "  |   File \"a.py\", line 1, in <module>",
                       "  | ExceptionGroup: tasks (1 sub-exception)",
                       "  +-+---------------- 1 ----------------",
                       "    | Traceback (most recent call last):",
                       "    |   File \"a.py\", line 9, in task", "    | TypeError: inner",
                       "    +------------------------------------"})
                .exception(),
            "TypeError: inner");
  EXPECT_EQ(collected({"  + Exception Group Traceback (most recent call last):",
                       "  |   File \"a.py\", line 1, in <module>",
                       "  | ExceptionGroup: tasks (1 sub-exception)"})
                .exception(),
            "ExceptionGroup: tasks (1 sub-exception)");
}

TEST(TracebackCollector, KeepsTheCauseOverAParentsReport) {
  for (const char* report :
       {"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 1."}) {
    EXPECT_EQ(collected({kHeader, "  File \"train.py\"", "ValueError: cause", kHeader,
                         "  File \"/bin/torchrun\"", report})
                  .exception(),
              "ValueError: cause");
    const TracebackCollector alone = fed({kHeader, "  File \"/bin/torchrun\"", report});
    EXPECT_TRUE(alone.empty());
    EXPECT_EQ(alone.report().exception(), report);
  }
}

TEST(TracebackCollector, SaysWhenABlockWasCutOff) {
  EXPECT_EQ(collected({kHeader, "  File \"a.py\"", "> somebody else <"}).exception(), "");
}

TEST(TracebackCollector, TakesAllLinesOfAnExceptionsText) {
  const Traceback plain = collected({kHeader, "  File \"a.py\", line 1", "    f()",
                                     "RuntimeError: Error(s) in loading state_dict for Net:",
                                     "\tMissing key(s) in state_dict: \"a\".", "the job ends"});
  EXPECT_EQ(plain.exception(), "RuntimeError: Error(s) in loading state_dict for Net:");
  EXPECT_EQ(plain.text_lines, 2U);
  EXPECT_EQ(plain.lines.back(), "\tMissing key(s) in state_dict: \"a\".");

  const Traceback torchs =
      collected({"[rank0]: Traceback (most recent call last):", "[rank0]:   File \"a.py\", line 1",
                 "[rank0]: KeyError: 1", "[rank0]: and more", "[W1] a warning"});
  EXPECT_EQ(torchs.text_lines, 2U);
  EXPECT_EQ(torchs.lines.back(), "and more");
}

TEST(TracebackCollector, RemembersWhatAnExceptionWasRaisedFrom) {
  const char* const direct = "The above exception was the direct cause of the following exception:";
  const char* const handled = "During handling of the above exception, another exception occurred:";

  const Traceback found =
      collected({kHeader, "  File \"a.py\"", "KeyError: 'lr'", direct, kHeader, "  File \"b.py\"",
                 "ValueError: no rate", handled, kHeader, "  File \"c.py\"", "OSError: gone"});

  EXPECT_THAT(found.causes, ElementsAre("KeyError: 'lr'", "ValueError: no rate"));
  EXPECT_EQ(found.exception(), "OSError: gone");
  EXPECT_THAT(collected({kHeader, "  File \"a.py\"", "KeyError: 1", "epoch 2", kHeader,
                         "  File \"b.py\"", "OSError: gone"})
                  .causes,
              IsEmpty());
}

TEST(TracebackCollector, TakesAQuotedTracebackForTheRanksThatItIsOf) {
  const Traceback found = collected(
      {kHeader, "  File \"train.py\", line 9",
       "smdistributed.modelparallel.torch.exceptions.SMPStepError: rank 1 failed in step 3:",
       kHeader, "  File \"model.py\", line 2", "ValueError: boom"});

  EXPECT_THAT(found.exception(), HasSubstr("SMPStepError: rank 1 failed in step 3:"));
  EXPECT_EQ(found.lines.back(), "ValueError: boom");
  EXPECT_EQ(found.text_lines, 2U);
}

TEST(TracebackCollector, KnowsExceptionsThatBlameAnotherRank) {
  for (const char* consequence :
       {"smdistributed.modelparallel.backend.exceptions.SMPConnectionError: rank 1 is lost",
        "smdistributed.modelparallel.torch.exceptions.SMPStepError: rank 1 failed in step 3:",
        "torch.distributed.DistNetworkError: failed to recv, got 0 bytes",
        "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a "
        "network error",
        "torch.distributed.DistBackendError: smddp: all_reduce: rank 1 has left the group; do all "
        "ranks make the same calls before they end?",
        "torch.distributed.DistBackendError: smddp: barrier: the process of rank 1 (pid 7 on this "
        "host) has ended; see its output",
        "torch.distributed.DistBackendError: smddp: rank 1 (at 10.0.0.2) is gone: its connection "
        "ended (closed)",
        "torch.distributed.DistBackendError: smddp: all_gather: rank 0 waited 50 ms for rank(s) 1, "
        "which did not take part; do all ranks of the group make the same calls in the same order",
        "RuntimeError: [../gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]"}) {
    EXPECT_TRUE(blames_another_rank(consequence)) << consequence;
  }
  for (const char* cause :
       {"ValueError: boom", "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        "smdistributed.modelparallel.torch.exceptions.SMPStepError: a step was called inside a "
        "step",
        "torch.distributed.DistBackendError: smddp: all_reduce: rank 0 gives 4 elements and rank 1 "
        "8",
        "ConnectionRefusedError: [Errno 111] Connection refused", ""}) {
    EXPECT_FALSE(blames_another_rank(cause)) << cause;
  }
}

}  // namespace
}  // namespace entrypoint
