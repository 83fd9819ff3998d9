// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/output_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/job/failure/cause.h"
#include "tests/unit/entrypoint/job/failure/tagged_piece.h"

namespace entrypoint {
namespace {

using testing::ElementsAre;

void feed(OutputRecord& record, StreamKind kind, std::initializer_list<const char*> lines) {
  for (const std::string line : lines) add(record, kind, line + "\n");
}

TEST(OutputRecord, KeepsTheLastTracebackFromItsStartToTheException) {
  OutputRecord record;

  feed(record, StreamKind::kErr,
       {"Traceback (most recent call last):", "  File \"a.py\", line 1, in <module>", "    f()",
        "KeyError: 'x'", "", "During handling of the above exception, another exception occurred:",
        "", "Traceback (most recent call last):", "  File \"a.py\", line 3, in <module>",
        "ValueError: boom", "goodbye"});

  const auto found = tracebacks(record);
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].rank, OutputRecord::kNoRank);
  EXPECT_EQ(found[0].traceback->exception(), "ValueError: boom");
  EXPECT_EQ(found[0].traceback->lines.size(), 3);
}

TEST(OutputRecord, KeepsAWorkersTracebackWhenTorchrunReportsIt) {
  OutputRecord record;

  feed(record, StreamKind::kErr,
       {"Traceback (most recent call last):", "  File \"train.py\", line 3, in <module>",
        "ValueError: boom", "E1121 11:04:12.1 27 api.py:882] failed (exitcode: 1) local_rank: 1",
        "Traceback (most recent call last):",
        "  File \"/opt/venv/bin/torchrun\", line 8, in <module>",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "=====",
        "train.py FAILED"});

  ASSERT_EQ(tracebacks(record).size(), 1);
  EXPECT_EQ(tracebacks(record)[0].traceback->exception(), "ValueError: boom");
}

TEST(OutputRecord, KeepsTorchrunsReportApartFromTracebacks) {
  OutputRecord record;

  feed(record, StreamKind::kErr,
       {"Traceback (most recent call last):",
        "  File \"/opt/venv/bin/torchrun\", line 8, in <module>",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", "====="});

  EXPECT_TRUE(tracebacks(record).empty());
  EXPECT_THAT(record.processes().at(OutputRecord::kNoRank).report()->exception(),
              testing::HasSubstr("ChildFailedError"));
}

TEST(OutputRecord, SeparatesRanksThatSpeakAtOnce) {
  OutputRecord record;

  feed(record, StreamKind::kErr,
       {"[1,2]<stderr>:Traceback (most recent call last):",
        "[1,3]<stderr>:Traceback (most recent call last):", "[1,2]<stderr>:  File \"two.py\"",
        "[1,3]<stderr>:  File \"three.py\"", "[1,3]<stderr>:ValueError: three",
        "[1,2]<stderr>:ValueError: two"});

  const auto found = tracebacks(record);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].rank, 2);
  EXPECT_EQ(found[0].traceback->exception(), "ValueError: two");
  EXPECT_EQ(found[1].traceback->lines[1], "  File \"three.py\"");
}

TEST(OutputRecord, PutsTheRankThatMpirunBlamesFirst) {
  // Rank 0 logged a handled exception long before rank 3 ended the job.
  const std::string words[] = {
      "MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
      "  Process name: [[60263,1],3]",
      "mpirun noticed that process rank 3 with PID 0 on node algo-2 exited on signal 9 (Killed)."};
  for (const std::string& word : words) {
    OutputRecord record;
    feed(record, StreamKind::kErr,
         {"[1,0]<stderr>:Traceback (most recent call last):", "[1,0]<stderr>:OSError: handled",
          "[1,3]<stderr>:Traceback (most recent call last):", "[1,3]<stderr>:ValueError: boom"});

    add(record, StreamKind::kErr, word + "\n");
    add(record, StreamKind::kErr, "  Process name: [[60263,1],1]\n");

    ASSERT_TRUE(record.reports().first()) << word;
    EXPECT_EQ(record.reports().first()->rank, 3) << word;
    EXPECT_EQ(tracebacks(record).front().rank, 3) << word;
  }
}

TEST(OutputRecord, KnowsRanksThatTorchMarks) {
  OutputRecord record;

  feed(
      record, StreamKind::kErr,
      {"[rank1]: Traceback (most recent call last):", "[rank0]: Traceback (most recent call last):",
       "[rank1]:   File \"one.py\"", "[rank0]:   File \"zero.py\"", "[rank1]: ValueError: one",
       "[rank0]: ValueError: zero", "[rank7] no mark", "[rank]: no number"});

  const auto found = tracebacks(record);
  ASSERT_EQ(found.size(), 2);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_EQ(found[0].traceback->exception(), "ValueError: one");
  EXPECT_EQ(found[1].traceback->lines[1], "  File \"zero.py\"");
}

TEST(OutputRecord, KeepsTheLastWordsOfEachRank) {
  OutputRecord record;

  feed(record, StreamKind::kOut, {"[1,0]<stdout>:loss 1", "[1,1]<stderr>:\x1b[31mbad\x1b[0m"});

  EXPECT_THAT(record.processes().at(0).last_words(), ElementsAre("loss 1"));
  EXPECT_THAT(record.processes().at(1).last_words(), ElementsAre("bad"));
  EXPECT_FALSE(record.processes().contains(2));
}

TEST(OutputRecord, JoinsPiecesOfALine) {
  OutputRecord record;

  add(record, StreamKind::kOut, "ab");
  add(record, StreamKind::kOut, "cd\n");

  EXPECT_THAT(record.lines(StreamKind::kOut), ElementsAre("abcd"));
}

TEST(OutputRecord, StaysBoundedWhateverComes) {
  OutputRecord record;
  const std::string long_line(100'000, 'x');

  feed(record, StreamKind::kErr, {"Traceback (most recent call last):"});
  for (int i = 0; i < 5000; ++i) {
    add(record, StreamKind::kErr, "  NCCL WARN " + long_line + "\n");
    add(record, StreamKind::kOut, long_line + "\n");
  }
  feed(record, StreamKind::kErr, {"RecursionError: deep"});

  EXPECT_EQ(record.lines(StreamKind::kErr).size(), OutputRecord::kErrLines);
  EXPECT_EQ(record.lines(StreamKind::kOut).size(), OutputRecord::kOutLines);
  EXPECT_EQ(record.lines(StreamKind::kOut).front().size(), OutputRecord::kLongestLine);
  EXPECT_EQ(record.telling_lines().size(), OutputRecord::kTellingLines);
  const auto found = tracebacks(record);
  EXPECT_EQ(found[0].traceback->lines.size(), TracebackCollector::kLongest);
  EXPECT_EQ(found[0].traceback->lines.front(), "Traceback (most recent call last):");
  EXPECT_EQ(found[0].traceback->exception(), "RecursionError: deep");
}

TEST(OutputRecord, TakesNoMetricForAnError) {
  OutputRecord record;

  feed(record, StreamKind::kOut, {"RuntimeErrorRate=0", "ValueError: not in a traceback"});

  EXPECT_TRUE(tracebacks(record).empty());
  EXPECT_TRUE(record.telling_lines().empty());
}

}  // namespace
}  // namespace entrypoint
