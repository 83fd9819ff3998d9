// SPDX-License-Identifier: Apache-2.0
// Text of the live line, within a number of columns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "smp_runtime/metrics/outputs/step_report.h"

namespace smp::metrics {

constexpr int kColumns = 120;

/// Facts of a line besides the report.
struct LineContext {
  std::optional<std::int64_t> total = {};   ///< how many steps the job makes
  std::optional<double> seconds_left = {};  ///< [s]
  bool pipeline = true;                     ///< whether there is one, whose use tells something
  int replicas = 1;
  int columns = kColumns;
};

/// Line of a training step. Parts that do not fit are left out: first the smallest amounts of
/// memory.
std::string progress_line(const StepReport& report, const LineContext& context);

/// Line of the `steps` of an evaluation so far, which follows training step `step`. `loss`: their
/// mean.
std::string evaluation_line(std::int64_t step, std::int64_t steps, std::optional<double> loss,
                            const LineContext& context);

}  // namespace smp::metrics
