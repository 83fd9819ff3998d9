// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/metrics/outputs/metric_outputs.h"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/metrics/outputs/tensorboard_events.h"

namespace smp::metrics {
namespace {

using nlohmann::ordered_json;

/// Empty: not known.
using MetricValue = std::optional<std::variant<std::int64_t, double>>;

struct Metric {
  std::string_view key;      ///< as in a report
  std::string_view name;     ///< in OpenMetrics, where a unit ends it
  std::string_view unit;     ///< in CloudWatch
  std::string_view meaning;  ///< in OpenMetrics
  MetricValue (*value)(const StepReport&);
};

constexpr std::array kMetrics = {
    Metric{"loss", "smp_loss", "None", "Loss of the last training step",
           [](const StepReport& report) -> MetricValue { return report.loss; }},
    Metric{"seconds", "smp_step_seconds", "Seconds", "Time of the last step",
           [](const StepReport& report) -> MetricValue { return report.seconds; }},
    Metric{"samples_per_second", "smp_samples_per_second", "Count/Second", "Of all replicas",
           [](const StepReport& report) -> MetricValue { return report.samples_per_second; }},
    Metric{"pipeline_use", "smp_pipeline_use_ratio", "None", "Share of the step spent computing",
           [](const StepReport& report) -> MetricValue {
             return report.pipeline ? MetricValue(report.pipeline->computed) : std::nullopt;
           }},
    Metric{"data_wait_share", "smp_data_wait_ratio", "None", "Share outside of steps",
           [](const StepReport& report) -> MetricValue { return report.data_wait_share; }},
    Metric{"flops_per_second", "smp_flops_per_second", "Count/Second", "Of the model, a rank",
           [](const StepReport& report) -> MetricValue {
             return report.flops ? report.flops->per_second : std::nullopt;
           }},
    Metric{"flops_utilization", "smp_flops_utilization_ratio", "None", "Share of the peak",
           [](const StepReport& report) -> MetricValue {
             return report.flops ? report.flops->utilization : std::nullopt;
           }},
    Metric{"peak_memory_bytes", "smp_peak_memory_bytes", "Bytes", "Of the first rank",
           [](const StepReport& report) -> MetricValue { return report.peak_memory_bytes; }},
};

/// Empty for infinite numbers too: formats for machines know none.
std::optional<double> finite_value(const Metric& metric, const StepReport& report) {
  const MetricValue value = metric.value(report);
  if (!value) return {};
  const double number = std::visit([](auto any) { return static_cast<double>(any); }, *value);
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

class JsonLines final : public MetricOutput {
 public:
  explicit JsonLines(std::filesystem::path file) : file_(std::move(file)) {}
  [[nodiscard]] std::string_view variable() const override { return "SMP_METRICS"; }
  [[nodiscard]] bool each_step() const override { return true; }

  void write(const StepReport& report) override { append_text(file_, as_json(report) + "\n"); }

 private:
  const std::filesystem::path file_;
};

class TensorBoardEvents final : public MetricOutput {
 public:
  explicit TensorBoardEvents(std::filesystem::path folder) : folder_(std::move(folder)) {}
  [[nodiscard]] std::string_view variable() const override { return "SMP_TENSORBOARD"; }

  void write(const StepReport& report) override {
    const std::string kind = report.evaluation ? "evaluation/" : "train/";
    std::vector<ScalarEvent> events;
    for (const Metric& metric : kMetrics) {
      // A loss that is no number is to be seen.
      const auto value = metric.key == "loss" ? report.loss : finite_value(metric, report);
      if (!value) continue;
      events.push_back({.tag = kind + std::string(metric.key),
                        .value = static_cast<float>(*value),
                        .step = report.step,
                        .time = report.time});
    }
    if (!file_) file_.emplace(folder_, report.time);
    file_->append(events);
  }

 private:
  const std::filesystem::path folder_;
  std::optional<EventFile> file_;
};

/// As Python writes it: "2.0", "1e-05"; whole numbers have no point.
std::string open_metrics_number(std::int64_t number) { return fmt::to_string(number); }
std::string open_metrics_number(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number > 0 ? "+Inf" : "-Inf";
  std::string text = fmt::to_string(number);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string escaped_label(std::string_view value) {
  std::string text;
  for (const char byte : value) {
    if (byte == '\\' || byte == '"') text += '\\';
    text += byte == '\n' ? std::string("\\n") : std::string(1, byte);
  }
  return text;
}

/// Header before the samples of a name; a unit is part of the name and has to be named once more.
std::string family_head(std::string_view name, std::string_view type, std::string_view meaning) {
  std::string lines = fmt::format("# TYPE {} {}\n", name, type);
  for (const std::string_view unit : {"bytes", "seconds", "ratio"}) {
    if (name.ends_with(fmt::format("_{}", unit))) {
      lines += fmt::format("# UNIT {} {}\n", name, unit);
    }
  }
  return lines + fmt::format("# HELP {} {}\n", name, meaning);
}

class OpenMetricsFile final : public MetricOutput {
 public:
  OpenMetricsFile(std::filesystem::path file, std::string_view job)
      : file_(std::move(file)), label_(fmt::format("job_name=\"{}\"", escaped_label(job))) {}
  [[nodiscard]] std::string_view variable() const override { return "SMP_OPENMETRICS"; }

  void write(const StepReport& report) override {
    if (report.evaluation) return;
    std::string text;
    for (const Metric& metric : kMetrics) {
      const MetricValue value = metric.value(report);
      if (!value) continue;
      const auto number = std::visit([](auto any) { return open_metrics_number(any); }, *value);
      text += family_head(metric.name, "gauge", metric.meaning);
      text += fmt::format("{}{{{}}} {}\n", metric.name, label_, number);
    }
    text += family_head("smp_memory_bytes", "gauge", "The model's state, of the first rank");
    for (const auto& [kind, bytes] : report.memory_bytes) {
      text += fmt::format("smp_memory_bytes{{{},kind=\"{}\"}} {}\n", label_, kind, bytes);
    }
    text += family_head("smp_steps", "counter", "Training steps");
    text += fmt::format("smp_steps_total{{{}}} {}\n# EOF\n", label_, report.step);
    replace_text(file_, text);
  }

 private:
  const std::filesystem::path file_;
  const std::string label_;  ///< that each sample has
};

class EmbeddedMetrics final : public MetricOutput {
 public:
  /// `job`: the value of the dimension JobName.
  EmbeddedMetrics(std::string name_space, std::string job)
      : namespace_(std::move(name_space)), job_(std::move(job)) {}
  [[nodiscard]] std::string_view variable() const override { return "SMP_EMBEDDED_METRICS"; }

  /// `train` knows such a line by its begin and shows it without the rank's tag.
  void write(const StepReport& report) override {
    const std::string kind = report.evaluation ? "evaluation_" : "";
    ordered_json named = ordered_json::array();
    ordered_json values = ordered_json::object();
    for (const Metric& metric : kMetrics) {
      const std::optional<double> value = finite_value(metric, report);
      if (!value) continue;
      const std::string name = kind + std::string(metric.key);
      named.push_back(ordered_json{{"Name", name}, {"Unit", metric.unit}});
      values[name] = *value;
    }
    const ordered_json directive = {
        {"Namespace", namespace_},
        {"Dimensions", ordered_json::array({ordered_json::array({"JobName"})})},
        {"Metrics", named},
    };
    ordered_json line = {
        {"_aws",
         {{"Timestamp", static_cast<std::int64_t>(1000 * report.time)},
          {"CloudWatchMetrics", ordered_json::array({directive})}}},
        {"JobName", job_},
        {"step", report.step},
    };
    line.update(values);
    print(json_line(line, /*in_ascii=*/true) + "\n");
  }

 private:
  static void print(const std::string& line) {
    if (std::fwrite(line.data(), 1, line.size(), stdout) == line.size() &&
        std::fflush(stdout) == 0) {
      return;
    }
    throw HostError("cannot write stdout: {}",
                    std::error_code(errno, std::generic_category()).message());
  }

  const std::string namespace_;
  const std::string job_;
};

}  // namespace

MetricOutputs metric_outputs(const cluster::RuntimeOptions& options) {
  const std::string& job = options.job_name;
  MetricOutputs outputs;
  if (!options.metrics_file.empty()) {
    outputs.push_back(std::make_unique<JsonLines>(options.metrics_file));
  }
  if (!options.tensorboard_folder.empty()) {
    outputs.push_back(std::make_unique<TensorBoardEvents>(options.tensorboard_folder));
  }
  if (!options.openmetrics_file.empty()) {
    outputs.push_back(std::make_unique<OpenMetricsFile>(options.openmetrics_file, job));
  }
  if (!options.embedded_metrics.empty()) {
    outputs.push_back(std::make_unique<EmbeddedMetrics>(options.embedded_metrics, job));
  }
  return outputs;
}

}  // namespace smp::metrics
