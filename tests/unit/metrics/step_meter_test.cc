// SPDX-License-Identifier: Apache-2.0
// The account of steps, by a clock that the test sets, and what is said of it.
#include "smp_runtime/metrics/step_meter.h"

#include <cmath>
#include <limits>
#include <regex>
#include <sstream>
#include <stdexcept>

#include <ATen/ops/scalar_tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::metrics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

using Reports = std::vector<StepReport>;

class Collected final : public MetricOutput {
 public:
  explicit Collected(Reports& reports) : reports_(reports) {}
  [[nodiscard]] std::string_view variable() const override { return "COLLECTED"; }
  [[nodiscard]] bool each_step() const override { return true; }
  void write(const StepReport& report) override { reports_.push_back(report); }

 private:
  Reports& reports_;
};

class Broken final : public MetricOutput {
 public:
  explicit Broken(int& calls) : calls_(calls) {}
  [[nodiscard]] std::string_view variable() const override { return "BROKEN"; }
  [[nodiscard]] bool each_step() const override { return true; }
  void write(const StepReport&) override {
    ++calls_;
    throw HostError("the disk is full");
  }

 private:
  int& calls_;
};

struct Step {
  double wait = 0;  ///< [s] before it
  double seconds = 1;
  std::optional<double> loss = 1;
  bool training = true;
  std::optional<StepShares> use = StepShares{.computed = 1};
  std::int64_t samples = 8;
};

class StepMeterTest : public testing::Test {
 protected:
  void begin(StepMeter::Options options = {}) {
    testing::internal::CaptureStderr();
    options.clock = [this] { return now_; };
    options.outputs.push_back(std::make_unique<Collected>(reports_));
    meter_.emplace(
        std::move(options),
        [] {
          return MemoryLedger{{"parameters", 1024}};
        },
        nullptr, nullptr);
  }
  void step(const Step& made) {
    now_ += made.wait;
    meter_->begin_step();
    now_ += made.seconds;
    const at::Tensor loss =
        made.loss ? at::scalar_tensor(*made.loss, at::TensorOptions(at::kDouble)) : at::Tensor();
    meter_->end_step({.pipeline = made.use, .messages_sent = 2, .bytes_sent = 100}, made.samples,
                     loss, made.training);
  }
  /// The messages so far and of the end, without time, name and level.
  std::vector<std::string> end() {
    meter_.reset();
    std::istringstream text(testing::internal::GetCapturedStderr());
    std::vector<std::string> lines;
    for (std::string line; std::getline(text, line);) {
      lines.push_back(std::regex_replace(line, std::regex("^.*? (INFO|WARNING) +"), ""));
    }
    return lines;
  }

  double now_ = 1000;
  Reports reports_;
  std::optional<StepMeter> meter_;
};

std::string begin_of(const std::string& line) { return line.substr(0, line.find(", waiting")); }

TEST_F(StepMeterTest, StartUpIsNoWaitingForData) {
  begin();
  step({.wait = 500, .seconds = 2});
  step({.wait = 3, .seconds = 1});
  end();

  ASSERT_EQ(reports_.size(), 2U);
  EXPECT_EQ(reports_[0].seconds, 2);
  EXPECT_EQ(reports_[0].data_wait_share, 0);
  EXPECT_EQ(reports_[0].samples_per_second, 4);
  EXPECT_EQ(reports_[1].seconds, 4);
  EXPECT_EQ(reports_[1].data_wait_share, 0.75);
  EXPECT_EQ(reports_[1].samples_per_second, 2);
  EXPECT_EQ(reports_[1].messages_sent, 2);
  EXPECT_EQ(reports_[1].bytes_sent, 100);
  EXPECT_THAT(reports_[1].memory_bytes, ElementsAre(std::pair("parameters", 1024)));
  EXPECT_GT(reports_[1].peak_memory_bytes, 1 << 20);
}

TEST_F(StepMeterTest, AnOptimizerIsNoWaitingForData) {
  begin();
  step({});
  now_ += 2;
  meter_->optimizer_stepped();
  step({.wait = 1});
  end();

  EXPECT_EQ(reports_.at(1).data_wait_share, 0.25);
}

TEST_F(StepMeterTest, TheUseOfAPipelineIsToldOnceItIsKnown) {
  begin({.pipeline = true});
  step({.use = {}});
  step({.use = StepShares{.computed = 0.75}});

  const std::vector<std::string> lines = end();
  EXPECT_EQ(reports_.at(0).pipeline.has_value(), false);
  EXPECT_EQ(reports_.at(1).pipeline.value().computed, 0.75);
  EXPECT_THAT(lines, ElementsAre(Not(HasSubstr("pipeline")), HasSubstr("pipeline 75 %")));
}

TEST_F(StepMeterTest, LinesSayOfHowManyAndWhatIsLeft) {
  begin();
  meter_->set_total(4);
  step({.seconds = 100});  // start-up of a first step tells nothing of the others
  step({.wait = 10, .seconds = 30});
  step({.seconds = 20});
  step({.seconds = 30});
  step({.seconds = 10});

  std::vector<std::string> lines = end();
  for (std::string& line : lines) line = begin_of(line);
  EXPECT_THAT(lines,
              ElementsAre("step 1 of 4: loss 1, 0.08 samples/s",
                          "step 2 of 4: loss 1, 0.2 samples/s, 80 s left",
                          "step 3 of 4: loss 1, 0.4 samples/s, 30 s left",
                          "step 4 of 4: loss 1, 0.27 samples/s", "step 5: loss 1, 0.8 samples/s"));
}

TEST_F(StepMeterTest, LinesComeOnceInAnInterval) {
  begin();
  for (int i = 0; i < 8; ++i) step({.seconds = 0.25});

  EXPECT_THAT(end(), ElementsAre(HasSubstr("step 1:"), HasSubstr("step 5:")));
  EXPECT_EQ(reports_.size(), 8U) << "an output that asks gets each step";
}

TEST_F(StepMeterTest, EvaluationHasItsOwnLines) {
  begin({.replicas = 2});
  step({.seconds = 2});
  step({.seconds = 0.25, .loss = 3, .training = false});  // within a second of the line before
  step({.seconds = 0.25, .loss = 4, .training = false});
  step({.seconds = 2, .loss = {}});
  step({.seconds = 2, .loss = 5, .training = false});
  step({.seconds = 0.5, .loss = 7, .training = false});

  std::vector<std::string> lines = end();
  for (std::string& line : lines) line = line.substr(0, line.find(", peak"));
  EXPECT_THAT(lines,
              ElementsAre("step 1: loss 1 (first replica), 8 samples/s, waiting for data 0 %",
                          "evaluation after step 1: loss 3.5, mean of 2 steps of the first replica",
                          "step 2: 8 samples/s, waiting for data 0 %",
                          "evaluation after step 2: loss 5, mean of 1 step of the first replica",
                          "evaluation after step 2: loss 6, mean of 2 steps of the first replica"));
  std::vector<std::tuple<std::int64_t, bool, double>> told;
  for (const StepReport& one : reports_) {
    told.emplace_back(one.step, one.evaluation, one.loss.value_or(-1));
  }
  using Told = std::tuple<std::int64_t, bool, double>;
  EXPECT_THAT(told, ElementsAre(Told(1, false, 1), Told(1, true, 3), Told(1, true, 4),
                                Told(2, false, -1), Told(2, true, 5), Told(2, true, 7)));
}

TEST_F(StepMeterTest, AnEvaluationIsTheMeanOverItsSamples) {
  begin();
  step({.loss = 6, .training = false, .samples = 8});
  step({.loss = 24, .training = false, .samples = 4});

  EXPECT_THAT(end(), ElementsAre("evaluation before step 1: loss 6, mean of 1 step",
                                 "evaluation before step 1: loss 12, mean of 2 steps"));
}

TEST_F(StepMeterTest, AShortJobDoesNotLoseItsLastEvaluation) {
  begin();
  step({.loss = {}, .training = false});
  step({.seconds = 0.5, .loss = {}, .training = false});

  EXPECT_THAT(end(), ElementsAre("evaluation before step 1: 1 step, which returned no loss",
                                 "evaluation before step 1: 2 steps, which returned no loss"));
}

TEST_F(StepMeterTest, ALossThatIsLostIsSaidOnce) {
  begin({.progress = false});
  step({.loss = std::numeric_limits<double>::quiet_NaN()});
  step({.loss = std::numeric_limits<double>::infinity()});

  EXPECT_THAT(end(), ElementsAre(HasSubstr("the loss is nan in step 1: what is trained now")));
  EXPECT_TRUE(std::isnan(reports_.at(0).loss.value_or(0)));
}

TEST_F(StepMeterTest, OperationsAreThreeTimesTheForwards) {
  begin();
  meter_->count_flops({.microbatches = 4, .ranks = 2, .peak = 1e3});
  step({.seconds = 0.5});
  meter_->set_forward_flops(48);
  step({.seconds = 0.5});
  step({.seconds = 0.5, .training = false});
  end();

  ASSERT_TRUE(reports_.at(0).flops);
  EXPECT_EQ(reports_.at(0).flops->flops, std::nullopt) << "no forward was counted";
  EXPECT_EQ(reports_.at(1).flops->flops, 576);
  EXPECT_EQ(reports_.at(1).flops->per_second, 576);
  EXPECT_EQ(reports_.at(1).flops->utilization, 0.576);
  EXPECT_EQ(reports_.at(2).flops->flops, 192);
}

TEST_F(StepMeterTest, AnOutputThatFailsIsLeftOut) {
  int calls = 0;
  StepMeter::Options options{.progress = false};
  options.outputs.push_back(std::make_unique<Broken>(calls));
  begin(std::move(options));
  step({});
  step({});

  EXPECT_THAT(end(), ElementsAre("BROKEN: no more metrics: the disk is full"));
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(reports_.size(), 2U) << "the others go on";
}

}  // namespace
}  // namespace smp::metrics
