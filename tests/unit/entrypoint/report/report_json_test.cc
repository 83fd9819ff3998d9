// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/report_json.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "smp_runtime/schedule/simulation.h"

namespace entrypoint::report {
namespace {

using nlohmann::json;
using smp::record::Activity;
using smp::schedule::Schedule;

constexpr int kStages = 2;
constexpr int kMicrobatches = 4;

/// Two pipelines of two partitions, of which the first one works three times as long: forwards and
/// backwards of a microbatch take 2 and 4 ms in the mean.
JobRecord unequal_job(const json& settings) {
  JobRecord job;
  for (int number = 0; number < 4; ++number) {
    const int stage = number % kStages;
    const int first = number - stage;
    RankRecord rank{.rank = number, .host = "algo-1"};
    rank.facts = {{"groups", {{"PP", {first, first + 1}}}}, {"settings", settings}};
    rank.all = rank.later = StepLine{.step = 1, .steps = 1, .trained = 1, .total = 50'000};
    StepSpans spans{.step = 1, .begin = 1'000'000, .spans = {}};
    for (int microbatch = 0; microbatch < kMicrobatches; ++microbatch) {
      for (const auto& [activity, duration] :
           {std::pair(Activity::kForward, stage == 0 ? 3000 : 1000),
            std::pair(Activity::kBackward, stage == 0 ? 6000 : 2000),
            std::pair(Activity::kWait, 500)}) {
        spans.spans.push_back({.activity = static_cast<int>(activity),
                               .begin = 9500 * microbatch,
                               .duration = duration,
                               .microbatch = microbatch,
                               .name = "layers"});
      }
    }
    rank.spans.push_back(spans);
    job.ranks.push_back(rank);
  }
  return job;
}

json settings_of(const std::string& pipeline, int active) {
  return {{"pipeline", pipeline}, {"microbatches", kMicrobatches}, {"active_microbatches", active}};
}

json ideal_of(const JobRecord& job) {
  const json report = report_json(job, numbers_of(job), {});
  EXPECT_EQ(report["chart"].size(), 1U);
  return report["chart"][0]["ideal"];
}

TEST(IdealStep, IsWhatTheSchedulersSimulationMakesOfEqualPartitions) {
  const auto runs = smp::schedule::runs_of_equal_stages(kStages, 2000, 4000);
  for (const auto& [name, schedule] :
       {std::pair("simple", Schedule::kSimple), std::pair("interleaved", Schedule::kInterleaved)}) {
    for (const int active : {1, 2, 4}) {
      const auto step = smp::schedule::simulate_schedule(
          runs,
          {.microbatches = kMicrobatches, .active_microbatches = active, .schedule = schedule},
          kStages);

      const json ideal = ideal_of(unequal_job(settings_of(name, active)));

      EXPECT_EQ(ideal["length"], step.length) << name << ' ' << active;
      EXPECT_NEAR(ideal["waited"], 1 - step.use(), 1e-4);
      std::vector<std::vector<std::int64_t>> begins(kStages);
      for (const json& row : ideal["rows"]) begins[row[0]].push_back(row[2]);
      for (std::size_t stage = 0; stage < begins.size(); ++stage) {
        ASSERT_EQ(begins[stage].size(), step.begun[stage].size());
        for (std::size_t i = 0; i < begins[stage].size(); ++i) {
          EXPECT_EQ(begins[stage][i], step.begun[stage][i].begin);
        }
      }
    }
  }
}

TEST(IdealStep, OfSimplePartitionsFillAndDrainOnce) {
  const json ideal = ideal_of(unequal_job(settings_of("simple", 1)));

  EXPECT_EQ(ideal["length"], (kMicrobatches + kStages - 1) * 6000);
  EXPECT_EQ(ideal["waited"], 0.2);
  EXPECT_EQ(ideal["rows"][0], json::parse("[0, 0, 0, 2000, 0]"));
  EXPECT_EQ(ideal["rows"].back(), json::parse("[1, 1, 22000, 4000, 3]"));
}

TEST(IdealStep, OfOneMicrobatchAtATimeHasAllOthersWait) {
  const json ideal = ideal_of(unequal_job(settings_of("interleaved", 1)));

  EXPECT_EQ(ideal["length"], kMicrobatches * kStages * 6000);
  EXPECT_EQ(ideal["waited"], 0.5);
}

TEST(Report, HasThePredictedStepBesideTheMeasuredOne) {
  JobRecord job = unequal_job(settings_of("interleaved", 4));
  EXPECT_FALSE(report_json(job, numbers_of(job), {})["card"].contains("predicted"));

  job.ranks[0].partition = {{"predicted", {{"step_ms", 20.5}, {"use", 0.75}, {"bytes", 4000}}}};
  for (RankRecord& rank : job.ranks) {
    rank.later.inside = 40'000;
    rank.later.spent[static_cast<std::size_t>(Activity::kForward)] =
        rank.rank % 2 == 0 ? 36'000 : 12'000;
    rank.memory = {{.kinds = {{"parameters", 100}, {"activations", 10 * rank.rank}}},
                   {.kinds = {{"parameters", 100}, {"optimizer", 50}, {"heap", 7000}}}};
  }

  const json card = report_json(job, numbers_of(job), {})["card"];

  EXPECT_EQ(card["predicted"], json::parse(R"({"step_ms": 20.5, "use": 0.75, "bytes": 4000})"));
  EXPECT_EQ(card["measured"], json::parse(R"({"step_ms": 40.0, "use": 0.6, "bytes": 180})"));
}

TEST(Report, APredictionThatIsNoneCountsAsNothing) {
  JobRecord job = unequal_job(settings_of("interleaved", 4));
  job.ranks[0].partition = {{"predicted", {{"step_ms", "<b>"}, {"bytes", 1e300}}}};

  const json card = report_json(job, numbers_of(job), {})["card"];

  EXPECT_EQ(card["predicted"]["step_ms"], 0);
  EXPECT_EQ(card["predicted"]["bytes"], 1'000'000'000'000'000'000);
}

TEST(IdealStep, IsNoneWithoutAPipelineOrSpans) {
  JobRecord alone = unequal_job(settings_of("interleaved", 4));
  for (RankRecord& rank : alone.ranks) rank.facts["groups"]["PP"] = {rank.rank};
  JobRecord silent = unequal_job(settings_of("interleaved", 4));
  for (RankRecord& rank : silent.ranks) rank.spans[0].spans.clear();

  EXPECT_TRUE(ideal_of(alone).is_null());
  EXPECT_TRUE(ideal_of(silent).is_null());
}

}  // namespace
}  // namespace entrypoint::report
