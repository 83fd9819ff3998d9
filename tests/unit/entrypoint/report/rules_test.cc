// SPDX-License-Identifier: Apache-2.0
// Each fault, put into a record, is what the verdict names; a good job has none.
#include "entrypoint/report/rules.h"

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint::report {
namespace {

using smp::record::Activity;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr std::int64_t kSteps = 100;

/// Two stages times two replicas on two hosts; a step of 100 ms, of which 92 compute.
JobRecord good_job() {
  JobRecord job;
  for (int number = 0; number < 4; ++number) {
    RankRecord rank{.rank = number, .host = number < 2 ? "algo-1" : "algo-2"};
    const std::vector<int> stages = number < 2 ? std::vector{0, 1} : std::vector{2, 3};
    rank.facts = {{"ranks", 4}, {"groups", {{"PP", stages}}}, {"settings", {{"microbatches", 16}}}};
    StepLine line{.step = 1,
                  .steps = kSteps,
                  .trained = kSteps,
                  .samples = 8 * kSteps,
                  .total = kSteps * 100'000,
                  .inside = kSteps * 97'000,
                  .bytes = kSteps * 1000};
    const auto spend = [&](Activity activity, std::int64_t share) {
      line.spent[static_cast<std::size_t>(activity)] = kSteps * 1000 * share;
    };
    spend(Activity::kForward, 30);
    spend(Activity::kBackward, 62);
    spend(Activity::kWait, 3);
    spend(Activity::kReduce, 1);
    spend(Activity::kOptimizer, 2);
    spend(Activity::kData, 1);
    rank.all = rank.later = line;
    rank.periods.add(100'000, kSteps);
    for (int reading = 0; reading < 20; ++reading) {
      rank.memory.push_back({.time = static_cast<double>(reading), .peak = 1'000'000'000});
    }
    job.ranks.push_back(rank);
  }
  return job;
}

std::vector<Finding> verdict(const JobRecord& job) { return judge(job, numbers_of(job)); }

void spend(RankRecord& rank, Activity activity, std::int64_t percent) {
  rank.later.spent[static_cast<std::size_t>(activity)] = kSteps * 1000 * percent;
}

/// Ranks of a step that is longer by so much.
void lengthen(JobRecord& job, std::int64_t percent) {
  for (RankRecord& rank : job.ranks) rank.later.total += kSteps * 1000 * percent;
}

TEST(Rules, AGoodJobIsToldSo) {
  const auto findings = verdict(good_job());
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "good");
  EXPECT_THAT(findings[0].text, HasSubstr("92 %"));
}

TEST(Rules, ASlowRankIsNamed) {
  JobRecord job = good_job();
  spend(job.ranks[2], Activity::kBackward, 152);  // its twin is rank 0
  lengthen(job, 90);
  for (RankRecord& rank : job.ranks) {
    if (rank.rank != 2) spend(rank, Activity::kWait, 93);
  }
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "slow rank");
  EXPECT_THAT(findings[0].text, HasSubstr("Rank 2 on algo-2 computes 182.0 ms"));
}

TEST(Rules, AWholeSlowHostIsSaidToBeOne) {
  JobRecord job = good_job();
  for (const int rank : {2, 3})
    spend(job.ranks[static_cast<std::size_t>(rank)], Activity::kBackward, 152);
  lengthen(job, 90);
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "slow rank");
  EXPECT_THAT(findings[0].text, HasSubstr("algo-2"));
}

TEST(Rules, ASlowLoaderIsData) {
  JobRecord job = good_job();
  for (RankRecord& rank : job.ranks) spend(rank, Activity::kData, 100);
  lengthen(job, 100);
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "data");
  EXPECT_THAT(findings[0].advice, HasSubstr("num_workers"));
}

TEST(Rules, ABadPartitionIsNamed) {
  JobRecord job = good_job();
  for (const int rank : {1, 3})
    spend(job.ranks[static_cast<std::size_t>(rank)], Activity::kBackward, 220);
  lengthen(job, 160);
  for (const int rank : {0, 2})
    spend(job.ranks[static_cast<std::size_t>(rank)], Activity::kWait, 160);
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "partition");
  EXPECT_THAT(findings[0].text, HasSubstr("Partition 1"));
}

TEST(Rules, FewMicrobatchesAreTheBubble) {
  JobRecord job = good_job();
  for (RankRecord& rank : job.ranks) {
    rank.facts["settings"]["microbatches"] = 1;
    spend(rank, Activity::kWait, 95);
  }
  lengthen(job, 92);
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "bubble");
  EXPECT_THAT(findings[0].text, HasSubstr("cannot work for 50 %"));
}

TEST(Rules, ASlowLinkIsTheNetwork) {
  for (const Activity activity :
       {Activity::kGather, Activity::kReduce, Activity::kExchange, Activity::kWait}) {
    JobRecord job = good_job();
    for (RankRecord& rank : job.ranks) {
      spend(rank, activity, 100);
      // Waits for gathers and exchanges are inside of modules.
      if (activity == Activity::kGather || activity == Activity::kExchange) {
        spend(rank, Activity::kForward, 130);
        rank.later.nested = kSteps * 1000 * 100;
      }
    }
    lengthen(job, 100);
    const auto findings = verdict(job);
    EXPECT_EQ(findings[0].rule, "network") << name_of(activity);
  }
}

TEST(Rules, GrowthOfMemoryIsALeakOnlyWhereItGoesOn) {
  JobRecord job = good_job();
  for (std::size_t i = 0; i < 20; ++i) {
    job.ranks[1].memory[i].peak += static_cast<std::int64_t>(i) * 20'000'000;
    job.ranks[0].memory[i].peak += i > 2 ? 900'000'000 : 0;  // what a first epoch takes
  }
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "memory growth");
  EXPECT_THAT(findings[0].text, HasSubstr("rank 1"));
  EXPECT_EQ(findings.size(), 1U);
}

TEST(Rules, SkippedStepsAreCounted) {
  JobRecord job = good_job();
  for (int step = 0; step < 40; ++step) {
    job.ranks[0].events.push_back({.time = 1, .kind = "overflow", .text = ""});
  }
  EXPECT_EQ(verdict(job)[0].rule, "overflows");
  EXPECT_THAT(verdict(job)[0].text, HasSubstr("40 % of the steps"));
}

TEST(Rules, AFailureComesBeforeEverything) {
  JobRecord job = good_job();
  for (RankRecord& rank : job.ranks) spend(rank, Activity::kData, 100);
  lengthen(job, 100);
  job.end = JobEnd{.exit_code = 1, .failure = "disk full\nmore", .last_lines = {}};
  const auto findings = verdict(job);
  EXPECT_EQ(findings[0].rule, "failed");
  EXPECT_THAT(findings[0].text, EndsWith("exit code 1: disk full"));
  EXPECT_EQ(findings[1].rule, "data");
  job.end->failure =
      "ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"rank 3: lost\"\nCommand \"x\"";
  EXPECT_THAT(verdict(job)[0].text, EndsWith("exit code 1: rank 3: lost"));
}

TEST(Rules, OfAFewStepsNothingIsSaid) {
  JobRecord job = good_job();
  for (RankRecord& rank : job.ranks) rank.all.steps = 3;
  EXPECT_THAT(verdict(job)[0].text, HasSubstr("Only 3 steps"));
  job.ranks.clear();
  EXPECT_THAT(verdict(job)[0].text, HasSubstr("No rank recorded anything"));
}

TEST(Rules, AllHaveAThresholdASourceAndANameOfTheirOwn) {
  std::set<std::string_view> names;
  for (const Rule& rule : rules()) {
    EXPECT_FALSE(rule.finds.empty() || rule.source.empty()) << rule.name;
    names.insert(rule.name);
  }
  EXPECT_EQ(names.size(), rules().size());
}

/// The table of the page, from the rules; SMP_UPDATE_GOLDEN=1 writes it anew.
TEST(Rules, ThePageHasThem) {
  const std::string file = std::string(SMP_SOURCE_DIR) + "/docs/reference/report_rules.md";
  std::ifstream stream(file);
  const std::string page{std::istreambuf_iterator<char>(stream), {}};
  const std::size_t table = page.find("| rule |");
  std::string expected = page.substr(0, table) +
                         "| rule | what it looks at | from | why from there |\n"
                         "| --- | --- | --- | --- |\n";
  for (const Rule& rule : rules()) {
    expected += fmt::format("| {} | {} | {:g} | {} |\n", rule.name, rule.finds, rule.threshold,
                            rule.source);
  }
  if (std::getenv("SMP_UPDATE_GOLDEN") != nullptr) std::ofstream(file) << expected;
  EXPECT_EQ(page, expected) << "SMP_UPDATE_GOLDEN=1 writes it anew";
}

}  // namespace
}  // namespace entrypoint::report
