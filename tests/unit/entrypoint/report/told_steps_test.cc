// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/report/told_steps.h"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint::report {
namespace {

using testing_support::TemporaryFolder;

struct Case {
  const char* line;
  std::optional<std::int64_t> step;
  std::optional<double> loss;
};

class LineOfOutput : public ::testing::TestWithParam<Case> {};

TEST_P(LineOfOutput, IsReadByItsWords) {
  const auto told = read_told_line(GetParam().line);
  EXPECT_EQ(told.step, GetParam().step);
  EXPECT_EQ(told.loss, GetParam().loss);
}

INSTANTIATE_TEST_SUITE_P(
    Forms, LineOfOutput,
    ::testing::Values(
        Case{"step 12 of 400: loss 0.4231, 812 samples/s", 12, 0.4231},
        Case{"Step: 7 | Loss: 1.2e-3", 7, 1.2e-3}, Case{"Iter 3/10 loss=0.5", 3, 0.5},
        Case{"{'loss': 0.6931, 'grad_norm': 2.0, 'epoch': 1.0}", std::nullopt, 0.6931},
        Case{R"({"global_step": 40, "train_loss": 2.5})", 40, 2.5},
        Case{"Iteration [5/100], loss (2.0)", 5, 2.0}, Case{"steps 4, lossy 5", std::nullopt, {}},
        Case{"the loss of the second rank is 3", std::nullopt, std::nullopt},
        Case{"step -1 loss", std::nullopt, std::nullopt}, Case{"", std::nullopt, std::nullopt}));

TEST(StepLog, KeepsWhatTheFirstRankTells) {
  const TemporaryFolder folder;
  {
    StepLog log(folder.path(), "algo-1");
    log.add(0, "loading data");
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "log-algo-1.jsonl"));
    log.add(1, "step 1: loss 2.5");
    log.add(0, "step 1: loss 9.9");
    log.add(1, "step 2: loss 2.25");  // too early to be kept
    log.flush();
  }
  const ToldSteps told = read_step_log(folder.path() / "log-algo-1.jsonl");
  EXPECT_EQ(told.source, "algo-1's output");
  ASSERT_EQ(told.steps.size(), 1);
  EXPECT_EQ(told.steps[0].step, 1);
  EXPECT_EQ(told.steps[0].loss, 2.5);
}

TEST(ToldSteps, TimesBetweenLinesAreSharedByTheirSteps) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "log-a.jsonl";
  std::ofstream(file) << "{\"format\": 1}\n[100, 10, 2.5]\n[104, 14, null]\nnonsense\n[105, ";

  const ToldSteps told = read_step_log(file);

  ASSERT_EQ(told.steps.size(), 2);
  EXPECT_EQ(told.steps[1].seconds, 1);
  EXPECT_TRUE(std::isnan(told.steps[1].loss));
}

TEST(ToldSteps, AreReadFromAFileOfMetrics) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.jsonl";
  std::ofstream(file) << R"({"step": 1, "seconds": 0.5, "loss": 2.0})"
                      << "\n[]\n"
                      << R"({"step": 2, "seconds": 0.25, "loss": NaN})"
                      << "\n"
                      << R"({"step": 3, "seconds": 0.25})"
                      << "\n";

  const ToldSteps told = read_metrics(file);

  ASSERT_EQ(told.steps.size(), 2);
  EXPECT_EQ(told.steps[0].loss, 2.0);
  EXPECT_EQ(told.steps[1].step, 3);
  EXPECT_EQ(told.steps[1].time, 0.75);
}

}  // namespace
}  // namespace entrypoint::report
