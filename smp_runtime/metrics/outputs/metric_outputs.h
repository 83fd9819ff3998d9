// SPDX-License-Identifier: Apache-2.0
// Outputs of the first rank's metrics: files and streams that other programs read, each asked for
// by a variable of the environment.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "smp_runtime/cluster/runtime_options.h"
#include "smp_runtime/metrics/outputs/step_report.h"

namespace smp::metrics {

/// Takes reports. Not thread-safe.
class MetricOutput {
 public:
  virtual ~MetricOutput() = default;
  /// The variable that asks for it.
  [[nodiscard]] virtual std::string_view variable() const = 0;
  /// True if it gets each step, false for one a second at most: on a GPU a loss has to be waited
  /// for.
  [[nodiscard]] virtual bool each_step() const { return false; }
  /// Throws HostError where that fails; it is not called again then.
  virtual void write(const StepReport& report) = 0;
};
using MetricOutputs = std::vector<std::unique_ptr<MetricOutput>>;

/// SMP_METRICS: an object of JSON a step, appended to a file.
/// SMP_TENSORBOARD: event files in a folder, made with the first report.
/// SMP_OPENMETRICS: the last training step in OpenMetrics' text format, for Prometheus; the file is
/// whole at every moment.
/// SMP_EMBEDDED_METRICS: lines of stdout from which CloudWatch makes metrics (embedded metric
/// format).
MetricOutputs metric_outputs(const cluster::RuntimeOptions& options);

}  // namespace smp::metrics
