// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/rank_record.h"

#include <array>
#include <filesystem>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/report/job_record.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/report/record_text.h"

namespace entrypoint::report {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RecordFiles : public ::testing::Test {
 protected:
  RecordFiles() { std::filesystem::create_directories(folder_); }
  ~RecordFiles() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    write_text(folder_ + "/" + name, text);
  }
  [[nodiscard]] RankRecord rank(int number) const {
    return read_rank_record(folder_ + fmt::format("/rank-{}.jsonl", number));
  }
  [[nodiscard]] JobRecord job() const {
    const std::array<std::filesystem::path, 1> folders{folder_};
    return read_job_record(folders);
  }

  const std::string folder_ = ::testing::TempDir() + fmt::format("report-{}", ::getpid());
};

TEST_F(RecordFiles, ColumnsGoByTheirNames) {
  write("rank-0.jsonl", header_text(0) + step_text(1, 900, 10) + step_text(2, 900, 10) +
                            step_text(3, 100, 60) + step_text(4, 300, 80));
  const RankRecord record = rank(0);
  EXPECT_THAT(record.problems, IsEmpty());
  EXPECT_EQ(record.all.steps, 4);
  EXPECT_EQ(record.later.total, 400) << "the first two warm up";
  EXPECT_EQ(record.later.computed(), 140);
  EXPECT_NEAR(record.periods.quantile(0.5), 100, 2);
  EXPECT_NEAR(record.periods.quantile(0.95), 300, 6);
}

TEST_F(RecordFiles, LongOnesTakeLittleMemoryAndLoseNothing) {
  std::string text = header_text(0);
  for (int step = 1; step <= 100'000; ++step) text += step_text(step, step == 777 ? 9000 : 100, 1);
  write("rank-0.jsonl", text);
  const RankRecord record = rank(0);
  EXPECT_LE(record.lines.size(), kMostLines);
  std::int64_t steps = 0;
  std::int64_t longest = 0;
  for (const StepLine& line : record.lines) {
    EXPECT_EQ(line.step, steps + 1);
    steps += line.steps;
    longest = std::max(longest, line.total);
  }
  EXPECT_EQ(steps, 100'000);
  EXPECT_GE(longest, 9000) << "one slow step is still seen";
}

TEST_F(RecordFiles, AKilledRankLeavesHalfALine) {
  write("rank-0.jsonl", header_text(0) + step_text(1, 100, 10) + "[2,1,10");
  EXPECT_EQ(rank(0).all.steps, 1);
  EXPECT_THAT(rank(0).problems, IsEmpty());
}

TEST_F(RecordFiles, WhatIsBrokenIsNamedAndTheRestCounts) {
  write("rank-0.jsonl",
        header_text(0) + step_text(1, 100, 10) + "rubbish\n[3,1]\n" + step_text(4, 100, 10));
  const RankRecord record = rank(0);
  EXPECT_EQ(record.all.steps, 2);
  EXPECT_THAT(record.problems, ElementsAre(HasSubstr("line 3 cannot be read")));
  EXPECT_THAT(record.problems.front(), HasSubstr("1 more"));
}

TEST_F(RecordFiles, NumbersThatNoRecordHasAreNotTakenForOthers) {
  const std::string good = header_text(0) + step_text(1, 100, 10);
  for (const char* line :
       {R"({"memory":{"time":1,"peak":18446744073709551615,"kinds":{}}})",
        R"({"traffic":[[4294967297,1,1]]})", R"({"loss":[1e300,0.5,true]})",
        R"({"job":{"settings":{"microbatches":-1}}})", R"({"job":{"ranks":4294967297}})",
        R"({"spans":{"step":1,"begin_us":0,"rows":[[4294967296,0,1,0,"x"]]}})"}) {
    write("rank-0.jsonl", good + line + "\n");
    EXPECT_THAT(rank(0).problems, ElementsAre(HasSubstr("line 3 cannot be read"))) << line;
    EXPECT_EQ(rank(0).all.steps, 1);
  }
  write("rank-0.jsonl", good + step_text(2, std::int64_t{1} << 60, 10));
  EXPECT_EQ(rank(0).all.total, 100) << "a sum of such would be no number";
}

TEST_F(RecordFiles, AnotherFormatIsRefused) {
  write("rank-0.jsonl", R"({"format":2,"rank":0})"
                        "\n");
  EXPECT_THAT(rank(0).problems, ElementsAre(HasSubstr("its format is 2")));
}

TEST_F(RecordFiles, OfSeveralJobsTheNewestCounts) {
  write("rank-0.jsonl", header_text(0, "new") +
                            R"({"job":{"ranks":3}})"
                            "\n" +
                            step_text(1, 100, 10));
  write("rank-2.jsonl", header_text(2, "old") + step_text(1, 100, 10));
  write("rank-1.jsonl", header_text(1, "new"));
  const JobRecord record = job();
  EXPECT_EQ(record.ranks.size(), 2U);
  EXPECT_THAT(record.problems,
              ElementsAre(HasSubstr("the files are of 2 jobs"),
                          HasSubstr("of 3 ranks the records of 1 are missing: 2")));
}

TEST_F(RecordFiles, NothingIsAnErrorThatNamesTheFolder) {
  try {
    static_cast<void>(job());
    FAIL();
  } catch (const smp::ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_));
    EXPECT_THAT(error.what(), HasSubstr("SMP_RECORDS"));
  }
}

TEST_F(RecordFiles, HostsSayHowBusyTheyWere) {
  write("host-algo-1.jsonl", R"({"format":1,"host":"algo-1"})"
                             "\n"
                             "[10.5,0.25,100,400,5,6]\n[11.5,0.5,200,400,7,8]\n");
  const JobRecord record = job();
  ASSERT_EQ(record.hosts.size(), 1U);
  EXPECT_EQ(record.hosts[0].name, "algo-1");
  ASSERT_EQ(record.hosts[0].samples.size(), 2U);
  EXPECT_EQ(record.hosts[0].samples[1].memory, 200);
}

}  // namespace
}  // namespace entrypoint::report
