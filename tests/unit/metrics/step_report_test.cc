// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/step_report.h"

#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/metrics/report_builder.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;
using ::testing::ElementsAre;

std::vector<std::string> keys_of(const StepReport& report) {
  const auto object = ordered_json::parse(as_json(report));
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(StepReport, IsOneLineOfJson) {
  EXPECT_EQ(as_json(a_report()),
            R"({"step":3,"evaluation":false,"time":1750000000.0,"seconds":0.5,)"
            R"("global_batch_size":8,"samples_per_second":16.0,"pipeline_use":0.75,)"
            R"("pipeline_forward":0.0,"pipeline_deferred":0.0,)"
            R"("data_wait_share":0.125,"peak_memory_bytes":1073741824,"messages_sent":4,)"
            R"("bytes_sent":1000,"loss":2.5,"loss_ranks":1,)"
            R"("memory_bytes":{"parameters":400,"gradients":0}})");
}

TEST(StepReport, HasFlopsOnlyWhereSomebodyCountsThem) {
  StepReport report = a_report();
  EXPECT_FALSE(ordered_json::parse(as_json(report)).contains("flops"));

  report.flops = StepFlops{.flops = 720, .per_second = 1440, .utilization = {}};

  EXPECT_THAT(
      keys_of(report),
      ElementsAre("step", "evaluation", "time", "seconds", "global_batch_size",
                  "samples_per_second", "pipeline_use", "pipeline_forward", "pipeline_deferred",
                  "data_wait_share", "peak_memory_bytes", "messages_sent", "bytes_sent", "flops",
                  "flops_per_second", "flops_utilization", "loss", "loss_ranks", "memory_bytes"));
  const auto read = ordered_json::parse(as_json(report));
  EXPECT_EQ(read["flops"], 720);
  EXPECT_TRUE(read["flops"].is_number_integer());
  EXPECT_EQ(read["flops_per_second"], 1440.0);
  EXPECT_TRUE(read["flops_utilization"].is_null()) << "nobody knows this processor's peak";
}

TEST(StepReport, HasNullForWhatIsNotKnown) {
  StepReport report = a_report();
  report.pipeline.reset();
  report.loss.reset();
  report.loss_ranks = 0;
  report.flops = StepFlops{};
  report.memory_bytes.clear();

  const auto read = ordered_json::parse(as_json(report));

  for (const char* key :
       {"pipeline_use", "loss", "flops", "flops_per_second", "flops_utilization"}) {
    ASSERT_TRUE(read.contains(key)) << key;
    EXPECT_TRUE(read[key].is_null()) << key;
  }
  EXPECT_EQ(read["loss_ranks"], 0);
  EXPECT_EQ(read["memory_bytes"], ordered_json::object());
}

TEST(StepReport, NamesNumbersThatAreNotFinite) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [loss, text] :
       {std::pair(kNan, "NaN"), std::pair(-kNan, "NaN"), std::pair(kInfinity, "Infinity"),
        std::pair(-kInfinity, "-Infinity")}) {
    StepReport report = a_report();
    report.loss = loss;

    EXPECT_EQ(ordered_json::parse(as_json(report))["loss"], text);
  }
  StepReport report = a_report();
  report.samples_per_second = kInfinity;
  EXPECT_EQ(ordered_json::parse(as_json(report))["samples_per_second"], "Infinity");
}

TEST(StepReport, KeepsEveryDigit) {
  StepReport report = a_report();
  report.evaluation = true;
  report.loss = 0.1 + 0.2;
  report.seconds = 1.23e-7;
  report.bytes_sent = (std::int64_t{1} << 53) + 1;

  const auto read = ordered_json::parse(as_json(report));

  EXPECT_EQ(read["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_EQ(read["seconds"].get<double>(), 1.23e-7);
  EXPECT_EQ(read["bytes_sent"].get<std::int64_t>(), 9007199254740993);
  EXPECT_TRUE(read["evaluation"].get<bool>());
}

}  // namespace
}  // namespace smp::metrics
