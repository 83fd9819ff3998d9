// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/metric_outputs.h"

#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>
#include <string>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "tests/unit/metrics/event_reader.h"
#include "tests/unit/metrics/open_metrics_reader.h"
#include "tests/unit/metrics/report_builder.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSubsetOf;
using ::testing::UnorderedElementsAre;
using testing_support::read_file;
using testing_support::TemporaryFolder;

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr std::string_view kJob = "a \"quoted\" \\ job\nof two lines";

/// The one that such options ask for.
std::unique_ptr<MetricOutput> only_output(const cluster::RuntimeOptions& options) {
  MetricOutputs outputs = metric_outputs(options);
  EXPECT_EQ(outputs.size(), 1U);
  return std::move(outputs.at(0));
}

StepReport a_report_of(std::int64_t step, std::optional<double> loss, bool evaluation = false) {
  StepReport report = a_report();
  report.step = step;
  report.loss = loss;
  report.evaluation = evaluation;
  return report;
}

std::vector<std::tuple<std::uint64_t, float>> points(const std::vector<ReadPoint>& curve) {
  std::vector<std::tuple<std::uint64_t, float>> found;
  for (const ReadPoint& point : curve) found.emplace_back(point.step, point.value);
  return found;
}

std::vector<ordered_json> lines_of(const std::string& text) {
  std::vector<ordered_json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(ordered_json::parse(line));
  return lines;
}

TEST(MetricOutputs, AreThoseThatTheEnvironmentAsksFor) {
  EXPECT_TRUE(metric_outputs({}).empty());

  const MetricOutputs outputs = metric_outputs({.metrics_file = "a",
                                                .tensorboard_folder = "b",
                                                .openmetrics_file = "c",
                                                .embedded_metrics = "d"});

  std::vector<std::pair<std::string_view, bool>> found;
  for (const auto& output : outputs) found.emplace_back(output->variable(), output->each_step());
  EXPECT_THAT(
      found,
      ElementsAre(std::pair("SMP_METRICS", true), std::pair("SMP_TENSORBOARD", false),
                  std::pair("SMP_OPENMETRICS", false), std::pair("SMP_EMBEDDED_METRICS", false)));
}

// --- JsonLines ---

TEST(JsonLines, AreAppended) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics";
  testing_support::write_file(file, "{\"step\":0}\n");
  const auto output = only_output({.metrics_file = file});

  output->write(a_report_of(1, 6));
  output->write(a_report_of(2, std::nan("")));

  EXPECT_EQ(read_file(file), "{\"step\":0}\n" + as_json(a_report_of(1, 6)) + "\n" +
                                 as_json(a_report_of(2, std::nan(""))) + "\n");
}

TEST(JsonLines, ThatCannotBeWrittenSayWhy) {
  const TemporaryFolder folder;
  const auto missing = folder.path() / "missing" / "metrics";
  const auto output = only_output({.metrics_file = missing});
  EXPECT_THROW(output->write(a_report()), HostError);
  EXPECT_EQ(testing_support::message_of([&] { output->write(a_report()); }),
            "cannot write " + missing.string() + ": No such file or directory");

  const auto full = only_output({.metrics_file = "/dev/full"});
  EXPECT_EQ(testing_support::message_of([&] { full->write(a_report()); }),
            "cannot write /dev/full: No space left on device");
}

// --- TensorBoardEvents ---

TEST(TensorBoardEvents, AreReadByTensorBoard) {
  const TemporaryFolder folder;
  const auto events = folder.path() / "events";
  const auto output = only_output({.tensorboard_folder = events});
  EXPECT_FALSE(std::filesystem::exists(events)) << "nothing before the first report";
  StepReport unknown = a_report_of(4, 1.5);
  unknown.pipeline.reset();

  output->write(a_report());
  output->write(unknown);
  output->write(a_report_of(4, 2.0, true));

  const Curves found = read_events(events);
  EXPECT_THAT(points(found.at("train/loss")), ElementsAre(std::tuple(3, 2.5), std::tuple(4, 1.5)));
  EXPECT_THAT(points(found.at("train/pipeline_use")), ElementsAre(std::tuple(3, 0.75)))
      << "what is not known is left out";
  EXPECT_THAT(points(found.at("evaluation/loss")), ElementsAre(std::tuple(4, 2.0)));
  EXPECT_THAT(points(found.at("train/peak_memory_bytes")),
              ElementsAre(std::tuple(3, 0x1p30F), std::tuple(4, 0x1p30F)));
  EXPECT_EQ(found.at("train/loss")[0].time, 1.75e9);
  EXPECT_FALSE(found.contains("train/flops_per_second"));
}

TEST(TensorBoardEvents, AreThereAfterEachReport) {
  const TemporaryFolder folder;
  const auto output = only_output({.tensorboard_folder = folder.path()});
  for (std::int64_t step = 1; step <= 3; ++step) {
    output->write(a_report_of(step, 1));
    EXPECT_EQ(read_events(folder.path()).at("train/loss").size(), step);
  }
}

TEST(TensorBoardEvents, ShowALossThatIsLost) {
  const TemporaryFolder folder;
  const auto output = only_output({.tensorboard_folder = folder.path()});
  StepReport report = a_report_of(3, std::nan(""));
  report.samples_per_second = kInfinite;
  report.flops = StepFlops{.flops = 1, .per_second = 5, .utilization = std::nan("")};

  output->write(report);
  output->write(a_report_of(4, {}));

  const Curves found = read_events(folder.path());
  ASSERT_EQ(found.at("train/loss").size(), 1U) << "no loss, no point";
  EXPECT_EQ(found.at("train/loss")[0].step, 3U);
  EXPECT_TRUE(std::isnan(found.at("train/loss")[0].value));
  EXPECT_THAT(points(found.at("train/samples_per_second")), ElementsAre(std::tuple(4, 16)));
  EXPECT_THAT(points(found.at("train/flops_per_second")), ElementsAre(std::tuple(3, 5)));
  EXPECT_FALSE(found.contains("train/flops_utilization"));
}

// --- OpenMetricsFile ---

class OpenMetricsLoss : public ::testing::TestWithParam<double> {};

TEST_P(OpenMetricsLoss, IsThatOfTheLastTrainingStep) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.txt";
  const auto output = only_output({.openmetrics_file = file, .job_name = std::string(kJob)});

  output->write(a_report_of(2, 9.0));
  output->write(a_report_of(3, GetParam()));
  output->write(a_report_of(3, 7.0, true));

  ReadFamilies families = read_open_metrics(read_file(file));
  EXPECT_EQ(families["smp_steps"].type, "counter");
  ASSERT_EQ(families["smp_steps"].samples.size(), 1U);
  EXPECT_EQ(families["smp_steps"].samples[0].value(), 3);
  ASSERT_EQ(families["smp_loss"].samples.size(), 1U);
  const ReadSample& loss = families["smp_loss"].samples[0];
  EXPECT_THAT(loss.labels, ElementsAre(::testing::Pair("job_name", kJob)));
  EXPECT_TRUE(std::isnan(GetParam()) ? std::isnan(loss.value()) : loss.value() == GetParam());
  EXPECT_EQ(families["smp_pipeline_use_ratio"].unit, "ratio");
  EXPECT_EQ(families["smp_step_seconds"].samples[0].value(), 0.5);
  std::map<std::string, double> held;
  for (const ReadSample& sample : families["smp_memory_bytes"].samples) {
    EXPECT_EQ(sample.labels.at("job_name"), kJob);
    held[sample.labels.at("kind")] = sample.value();
  }
  EXPECT_THAT(held, UnorderedElementsAre(std::pair("parameters", 400), std::pair("gradients", 0)));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "no draft stays";
}

INSTANTIATE_TEST_SUITE_P(AnyLoss, OpenMetricsLoss,
                         ::testing::Values(2.5, std::nan(""), kInfinite, -kInfinite));

TEST(OpenMetricsFile, HasTheTextOfTheSpecification) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.txt";
  const auto output = only_output({.openmetrics_file = file, .job_name = "one"});
  StepReport report = a_report();
  report.flops = StepFlops{.flops = 720, .per_second = 1e16, .utilization = 1.5e-5};

  output->write(report);

  EXPECT_EQ(read_file(file), R"(# TYPE smp_loss gauge
# HELP smp_loss Loss of the last training step
smp_loss{job_name="one"} 2.5
# TYPE smp_step_seconds gauge
# UNIT smp_step_seconds seconds
# HELP smp_step_seconds Time of the last step
smp_step_seconds{job_name="one"} 0.5
# TYPE smp_samples_per_second gauge
# HELP smp_samples_per_second Of all replicas
smp_samples_per_second{job_name="one"} 16.0
# TYPE smp_pipeline_use_ratio gauge
# UNIT smp_pipeline_use_ratio ratio
# HELP smp_pipeline_use_ratio Share of the step spent computing
smp_pipeline_use_ratio{job_name="one"} 0.75
# TYPE smp_data_wait_ratio gauge
# UNIT smp_data_wait_ratio ratio
# HELP smp_data_wait_ratio Share outside of steps
smp_data_wait_ratio{job_name="one"} 0.125
# TYPE smp_flops_per_second gauge
# HELP smp_flops_per_second Of the model, a rank
smp_flops_per_second{job_name="one"} 1e+16
# TYPE smp_flops_utilization_ratio gauge
# UNIT smp_flops_utilization_ratio ratio
# HELP smp_flops_utilization_ratio Share of the peak
smp_flops_utilization_ratio{job_name="one"} 1.5e-05
# TYPE smp_peak_memory_bytes gauge
# UNIT smp_peak_memory_bytes bytes
# HELP smp_peak_memory_bytes Of the first rank
smp_peak_memory_bytes{job_name="one"} 1073741824
# TYPE smp_memory_bytes gauge
# UNIT smp_memory_bytes bytes
# HELP smp_memory_bytes The model's state, of the first rank
smp_memory_bytes{job_name="one",kind="parameters"} 400
smp_memory_bytes{job_name="one",kind="gradients"} 0
# TYPE smp_steps counter
# HELP smp_steps Training steps
smp_steps_total{job_name="one"} 3
# EOF
)");
}

TEST(OpenMetricsFile, HasNumbersOfTheSpecification) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.txt";
  const auto output = only_output({.openmetrics_file = file});
  const std::vector<std::pair<double, std::string>> rows = {
      {0.25, "0.25"},
      {2, "2.0"},
      {-0.0, "-0.0"},
      {0.1, "0.1"},
      {1e15, "1000000000000000.0"},
      {1e-5, "1e-05"},
      {std::nan(""), "NaN"},
      {-std::nan(""), "NaN"},
      {kInfinite, "+Inf"},
      {-kInfinite, "-Inf"},
  };
  for (const auto& [loss, text] : rows) {
    output->write(a_report_of(1, loss));

    EXPECT_EQ(read_open_metrics(read_file(file))["smp_loss"].samples.at(0).text, text);
  }
}

TEST(OpenMetricsFile, LeavesOutWhatIsNotKnown) {
  const TemporaryFolder folder;
  const auto file = folder.path() / "metrics.txt";
  const auto output = only_output({.openmetrics_file = file});
  StepReport report = a_report_of(1, {});
  report.pipeline.reset();

  output->write(report);

  const ReadFamilies families = read_open_metrics(read_file(file));
  for (const char* name : {"smp_loss", "smp_pipeline_use_ratio", "smp_flops_per_second"}) {
    EXPECT_FALSE(families.contains(name)) << name;
  }
}

TEST(OpenMetricsFile, ThatCannotBeReplacedLeavesNoDraft) {
  const TemporaryFolder folder;
  const auto occupied = folder.path() / "metrics.txt";
  std::filesystem::create_directories(occupied / "inside");
  const auto output = only_output({.openmetrics_file = occupied});

  EXPECT_EQ(testing_support::message_of([&] { output->write(a_report()); }),
            "cannot write " + occupied.string() + ": Is a directory");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// --- EmbeddedMetrics ---

TEST(EmbeddedMetrics, AreFoundByCloudWatchInTheirLine) {
  const auto output = only_output({.embedded_metrics = "Training", .job_name = std::string(kJob)});

  ::testing::internal::CaptureStdout();
  output->write(a_report());
  output->write(a_report_of(3, kInfinite, true));
  const std::string printed = ::testing::internal::GetCapturedStdout();

  EXPECT_TRUE(printed.starts_with(R"({"_aws")")) << "by which train knows the line";
  const std::vector<ordered_json> lines = lines_of(printed);
  ASSERT_EQ(lines.size(), 2U);
  for (const ordered_json& line : lines) {
    EXPECT_EQ(line["_aws"]["Timestamp"], 1'750'000'000'000);
    EXPECT_TRUE(line["_aws"]["Timestamp"].is_number_integer());
    ASSERT_EQ(line["_aws"]["CloudWatchMetrics"].size(), 1U);
    const ordered_json& directive = line["_aws"]["CloudWatchMetrics"][0];
    EXPECT_EQ(directive["Namespace"], "Training");
    EXPECT_EQ(directive["Dimensions"], ordered_json::parse(R"([["JobName"]])"));
    EXPECT_EQ(line["JobName"], kJob);
    EXPECT_EQ(line["step"], 3);
    std::vector<std::string> units;
    for (const ordered_json& metric : directive["Metrics"]) {
      EXPECT_TRUE(line.at(metric["Name"].get<std::string>()).is_number()) << metric["Name"];
      units.push_back(metric["Unit"]);
    }
    EXPECT_THAT(units, Contains("Bytes"));
    EXPECT_THAT(units,
                IsSubsetOf({"None", "None", "None", "None", "Seconds", "Bytes", "Count/Second"}));
  }
  EXPECT_EQ(lines[0]["loss"], 2.5);
  EXPECT_EQ(lines[0]["_aws"]["CloudWatchMetrics"][0]["Metrics"].size(), 6U);
  EXPECT_FALSE(lines[1].contains("evaluation_loss")) << "CloudWatch takes finite numbers alone";
  EXPECT_EQ(lines[1]["_aws"]["CloudWatchMetrics"][0]["Metrics"].size(), 5U);
  EXPECT_EQ(lines[1]["evaluation_seconds"], 0.5);
  EXPECT_FALSE(lines[1].contains("seconds"));
}

TEST(EmbeddedMetrics, HaveOneOrder) {
  const auto output = only_output({.embedded_metrics = "N", .job_name = "\u00e9"});
  StepReport report = a_report();
  report.time = 1.9996;
  report.pipeline.reset();

  ::testing::internal::CaptureStdout();
  output->write(report);

  EXPECT_EQ(::testing::internal::GetCapturedStdout(),
            R"({"_aws":{"Timestamp":1999,"CloudWatchMetrics":[{"Namespace":"N",)"
            R"("Dimensions":[["JobName"]],"Metrics":[{"Name":"loss","Unit":"None"},)"
            R"({"Name":"seconds","Unit":"Seconds"},)"
            R"({"Name":"samples_per_second","Unit":"Count/Second"},)"
            R"({"Name":"data_wait_share","Unit":"None"},)"
            R"({"Name":"peak_memory_bytes","Unit":"Bytes"}]}]},"JobName":"\u00e9","step":3,)"
            R"("loss":2.5,"seconds":0.5,"samples_per_second":16.0,"data_wait_share":0.125,)"
            R"("peak_memory_bytes":1073741824.0})"
            "\n");
}

}  // namespace
}  // namespace smp::metrics
