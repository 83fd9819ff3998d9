// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/metrics/outputs/step_report.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp::metrics {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

StepReport a_step_of_a_pipeline() {
  return {.step = 12,
          .samples_per_second = 812.4,
          .pipeline = StepShares{.computed = 0.713},
          .data_wait_share = 0.03,
          .peak_memory_bytes = 1'200'000'000,
          .loss = 0.4231,
          .loss_ranks = 2,
          .memory_bytes = {{"gradients", 100'000'000}, {"parameters", 200'000'000}, {"live", 0}}};
}

/// Columns of a line of ours, whose only longer character is the "…".
std::size_t width_of(std::string line) {
  for (std::size_t at = 0; (at = line.find("…", at)) != line.npos; ++at) {
    line.replace(at, std::string("…").size(), "+");
  }
  return line.size();
}

/// The second part of a line: its rate of samples.
std::string rate_shown(double rate) {
  const StepReport report{.step = 1, .samples_per_second = rate, .loss = 1};
  const std::string line = progress_line(report, {});
  const std::size_t from = line.find(", ") + 2;
  return line.substr(from, line.find(", ", from) - from);
}

std::string loss_shown(double loss) {
  const std::string line = progress_line({.step = 1, .loss = loss}, {});
  return line.substr(0, line.find(','));
}

TEST(ProgressLine, SaysTheMostThatFits) {
  const StepReport report = a_step_of_a_pipeline();

  EXPECT_EQ(
      progress_line(report, {.total = 400, .seconds_left = 400.0, .replicas = 2, .columns = 78}),
      "step 12 of 400: loss 0.4231, 812 samples/s, 7 min left, pipeline 71 %, …");
  EXPECT_EQ(progress_line(report, {.columns = 130}),
            "step 12: loss 0.4231, 812 samples/s, pipeline 71 %, waiting for data 3 %, "
            "peak 1.1 GiB (parameters 190.7 MiB, gradients 95.4 MiB)");
}

TEST(ProgressLine, TellsDeferredWorkApartWhereThereIsSome) {
  StepReport report = a_step_of_a_pipeline();
  report.pipeline->forward = 0.25;
  EXPECT_THAT(progress_line(report, {}), HasSubstr("pipeline 71 %, "));

  report.pipeline->deferred = 0.2;
  EXPECT_THAT(progress_line(report, {}),
              HasSubstr("pipeline 71 % (forward 25, backward 26, deferred 20), "));
}

TEST(ProgressLine, LeavesOutTheSmallestAmountsOfMemoryFirst) {
  const StepReport report{.step = 1,
                          .samples_per_second = 50,
                          .pipeline = StepShares{.computed = 0.5},
                          .peak_memory_bytes = std::int64_t{3} << 30,
                          .loss = 2,
                          .loss_ranks = 1,
                          .memory_bytes = {{"live", 1 << 10},
                                           {"parameters", 1 << 30},
                                           {"optimizer", std::int64_t{1} << 31},
                                           {"offloaded", 0}}};
  std::vector<std::string> shown;

  for (const int columns : {133, 132, 121, 79}) {
    shown.push_back(progress_line(report, {.columns = columns}));
  }

  const std::string step =
      "step 1: loss 2, 50 samples/s, pipeline 50 %, waiting for data 0 %, peak 3.0 GiB";
  EXPECT_THAT(shown, ElementsAre(step + " (optimizer 2.0 GiB, parameters 1.0 GiB, live 1.0 KiB)",
                                 step + " (optimizer 2.0 GiB, parameters 1.0 GiB, …)",
                                 step + " (optimizer 2.0 GiB, …)", step));
}

TEST(ProgressLine, OrdersEqualAmountsAsTheyCome) {
  StepReport report{.step = 1, .memory_bytes = {{"peak_live", 5}, {"b", 9}, {"a", 5}}};
  std::string expected = "step 1: waiting for data 0 %, peak 0 B (b 9 B, peak live 5 B, a 5 B";
  for (int more = 0; more < 20; ++more) {  // few of them are sorted alike by any method
    report.memory_bytes.emplace_back(std::to_string(more), 5);
    expected += fmt::format(", {} 5 B", more);
  }

  EXPECT_EQ(progress_line(report, {.columns = 500}), expected + ")");
}

TEST(ProgressLine, CountsCharactersAndNotBytes) {
  const StepReport report{.step = 1, .loss = 2, .memory_bytes = {{"a", 2}, {"b", 1}}};

  EXPECT_EQ(progress_line(report, {.columns = 57}),
            "step 1: loss 2, waiting for data 0 %, peak 0 B (a 2 B, …)");
  EXPECT_EQ(progress_line(report, {.columns = 18}), "step 1: loss 2, …");
  EXPECT_EQ(progress_line(report, {.columns = 17}), "step 1: loss 2, …");
}

TEST(ProgressLine, FitsAnyWidth) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  const StepReport report{
      .step = 12'345'678,
      .samples_per_second = 1e7,
      .pipeline = StepShares{.computed = 1},
      .data_wait_share = 1,
      .peak_memory_bytes = std::int64_t{1} << 60,
      .loss = -1.23456e-30,
      .loss_ranks = 1,
      .memory_bytes = {{"parameters", kLarge}, {"gradients", kLarge}, {"peak_live", kLarge}}};
  for (const auto total :
       {std::optional<std::int64_t>(), std::optional<std::int64_t>(12'345'678)}) {
    for (int columns = 14; columns <= 300; ++columns) {
      const std::string line = progress_line(
          report, {.total = total, .seconds_left = 8e6, .replicas = 2, .columns = columns});

      EXPECT_LE(width_of(line), columns);
      EXPECT_THAT(line, StartsWith("step 12345678"));
      EXPECT_EQ(width_of(line) < line.size(), line.find("…") != line.npos);
    }
  }
}

TEST(ProgressLine, IsCutWhereNothingIsLeftToLeaveOut) {
  const StepReport report{.step = 12, .loss = 0.5};

  EXPECT_EQ(progress_line(report, {.columns = 20}), "step 12: loss 0.5, …");
  EXPECT_EQ(progress_line(report, {.columns = 19}), "step 12: loss 0.5,…");
  EXPECT_EQ(progress_line(report, {.columns = 10}), "step 12: …");
  EXPECT_EQ(progress_line(report, {.columns = 1}), "…");
  EXPECT_EQ(progress_line(report, {.columns = 0}), "…");
  EXPECT_EQ(progress_line({.step = 12}, {.columns = 20}), "step 12: waiting fo…")
      << "a single part stays";
}

TEST(ProgressLine, SaysOfHowManyUntilThereAreMore) {
  EXPECT_THAT(progress_line({.step = 4}, {.total = 4}), StartsWith("step 4 of 4: "));
  EXPECT_THAT(progress_line({.step = 5}, {.total = 4}), StartsWith("step 5: "));
}

TEST(ProgressLine, SaysWhatIsLeftInTwoUnitsAtMost) {
  const std::vector<std::pair<double, std::string>> rows = {
      {0.4, "0 s"},
      {0.5, "0 s"},
      {1.5, "2 s"},
      {89, "89 s"},
      {89.9, "90 s"},
      {90, "2 min"},
      {91, "2 min"},
      {150, "2 min"},
      {210, "4 min"},
      {5399, "90 min"},
      {5400, "1 h 30 min"},
      {5401, "1 h 30 min"},
      {172'799, "48 h 0 min"},
      {172'800, "2 d 0 h"},
      {8e6, "92 d 14 h"},
  };
  for (const auto& [seconds, text] : rows) {
    EXPECT_EQ(progress_line({.step = 1}, {.seconds_left = seconds}),
              "step 1: " + text + " left, waiting for data 0 %, peak 0 B");
  }
}

TEST(ProgressLine, SaysTwoDigitsOfSlowRates) {
  const std::vector<std::pair<double, std::string>> rows = {
      {0.08, "0.08 samples/s"},    {8 / 30.0, "0.27 samples/s"}, {8.1e-5, "8.1e-05 samples/s"},
      {9.94, "9.9 samples/s"},     {9.96, "10 samples/s"},       {10, "10 samples/s"},
      {12.5, "12 samples/s"},      {813.5, "814 samples/s"},     {1e7, "10000000 samples/s"},
      {0, "waiting for data 0 %"},
  };
  for (const auto& [rate, text] : rows) EXPECT_EQ(rate_shown(rate), text);
}

TEST(ProgressLine, SaysFourDigitsOfTheLoss) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const std::vector<std::pair<double, std::string>> rows = {
      {2, "2"},
      {0.51234, "0.5123"},
      {-1.23456e-30, "-1.235e-30"},
      {1e-4, "0.0001"},
      {0.000012345, "1.234e-05"},
      {123456, "1.235e+05"},
      {9999.4, "9999"},
      {kInfinity, "inf"},
      {-kInfinity, "-inf"},
      {std::nan(""), "nan"},
      {-std::nan(""), "nan"},
  };
  for (const auto& [loss, text] : rows) EXPECT_EQ(loss_shown(loss), "step 1: loss " + text);
}

TEST(ProgressLine, SaysWhoseLossItIs) {
  StepReport report = a_step_of_a_pipeline();
  EXPECT_THAT(progress_line(report, {.replicas = 2}), HasSubstr("loss 0.4231, "));

  report.loss_ranks = 1;

  EXPECT_THAT(progress_line(report, {.replicas = 2}), HasSubstr("loss 0.4231 (first replica), "));
  EXPECT_THAT(progress_line(report, {}), HasSubstr("loss 0.4231, "));
}

TEST(ProgressLine, SaysTheUseOfAPipelineOnceItIsKnown) {
  StepReport report = a_step_of_a_pipeline();
  EXPECT_THAT(progress_line(report, {.pipeline = false}), Not(HasSubstr("pipeline")));

  report.pipeline.reset();

  EXPECT_THAT(progress_line(report, {}), Not(HasSubstr("pipeline")));
}

TEST(ProgressLine, SaysTheShareOfThePeakWhereThatIsKnown) {
  StepReport report = a_step_of_a_pipeline();
  report.flops = StepFlops{.flops = 1, .per_second = 1, .utilization = {}};
  EXPECT_THAT(progress_line(report, {}), Not(HasSubstr("FLOP")));

  report.flops->utilization = 0.437;

  EXPECT_THAT(progress_line(report, {}),
              HasSubstr("pipeline 71 %, 44 % of the peak FLOP/s, waiting for data 3 %"));
}

TEST(EvaluationLine, SaysWhatItIsTheMeanOf) {
  EXPECT_EQ(evaluation_line(12, 3, 0.51234, {}),
            "evaluation after step 12: loss 0.5123, mean of 3 steps");
  EXPECT_EQ(evaluation_line(1, 2, 3.5, {.replicas = 2}),
            "evaluation after step 1: loss 3.5, mean of 2 steps of the first replica");
  EXPECT_EQ(evaluation_line(2, 1, 5, {.replicas = 2}),
            "evaluation after step 2: loss 5, mean of 1 step of the first replica");
  EXPECT_EQ(evaluation_line(2, 1, -std::nan(""), {}),
            "evaluation after step 2: loss nan, mean of 1 step");
}

TEST(EvaluationLine, SaysThatThereIsNoLoss) {
  EXPECT_EQ(evaluation_line(0, 1, {}, {.replicas = 2}),
            "evaluation before step 1: 1 step of the first replica, which returned no loss");
  EXPECT_EQ(evaluation_line(0, 2, {}, {}),
            "evaluation before step 1: 2 steps, which returned no loss");
}

TEST(EvaluationLine, IsCut) {
  EXPECT_EQ(evaluation_line(12, 3, 0.5, {.columns = 30}), "evaluation after step 12: los…");
}

// CloudWatch searches each line of the log for the expressions; the group is the value.
TEST(PublishedDefinitions, FindTheMetricsInTheLog) {
  const std::string page =
      testing_support::read_file(std::string(SMP_SOURCE_DIR) + "/docs/how-to/watch_a_job.md");
  const std::string fence = "```json metric_definitions\n";
  const std::size_t from = page.find(fence);
  ASSERT_NE(from, page.npos);
  const std::size_t begin = from + fence.size();
  const auto definitions =
      nlohmann::json::parse(page.substr(begin, page.find("```", begin) - begin));
  StepReport report = a_step_of_a_pipeline();
  report.loss_ranks = 1;
  report.samples_per_second = 8.1e-5;
  const std::string prefix = "[1,mpirank:0,algo-1]<stderr>:2026-11-25 17:00:00,123 smp INFO     ";

  std::map<std::string, std::vector<std::string>> values;
  for (const std::string& line :
       {prefix + progress_line(report, {.total = 400, .seconds_left = 400.0, .replicas = 2}),
        prefix + evaluation_line(12, 3, 0.51234, {})}) {
    for (const auto& definition : definitions) {
      const std::regex expression(definition["Regex"].get<std::string>());
      std::smatch found;
      if (std::regex_search(line, found, expression)) {
        values[definition["Name"]].push_back(found[1]);
      }
    }
  }

  const std::map<std::string, std::vector<std::string>> expected = {
      {"train:loss", {"0.4231"}},
      {"train:samples_per_second", {"8.1e-05"}},
      {"train:pipeline_use_percent", {"71"}},
      {"train:data_wait_percent", {"3"}},
      {"evaluation:loss", {"0.5123"}},
  };
  EXPECT_EQ(values, expected);
}

}  // namespace
}  // namespace smp::metrics
