// SPDX-License-Identifier: Apache-2.0
// The first rank's report of a step, for people and for other programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/record/step_shares.h"

namespace smp::metrics {

using record::StepShares;

/// Bytes on this rank by what they are for ("parameters", "optimizer", ...).
using MemoryLedger = std::vector<std::pair<std::string, std::int64_t>>;

/// Floating-point operations of a step. Empty members are not known.
struct StepFlops {
  std::optional<std::int64_t> flops;  ///< of all ranks
  std::optional<double> per_second;   ///< of one rank
  std::optional<double> utilization;  ///< `per_second` by the peak of its device
};

struct StepReport {
  std::int64_t step = 0;  ///< training steps so far
  bool evaluation = false;
  double time = 0;     ///< [s] since 1970
  double seconds = 0;  ///< from the end of the step before
  std::int64_t global_batch_size = 0;
  double samples_per_second = 0;
  std::optional<record::StepShares> pipeline;  ///< empty where it is not known yet
  double data_wait_share = 0;
  std::int64_t peak_memory_bytes = 0;
  std::int64_t messages_sent = 0;
  std::int64_t bytes_sent = 0;
  std::optional<StepFlops> flops;  ///< empty: nobody counts them
  std::optional<double> loss;
  int loss_ranks = 0;  ///< over how many ranks `loss` is the mean
  MemoryLedger memory_bytes;
};

/// An object of JSON on one line (docs/reference/file_formats.md). JSON has no numbers that are not
/// finite; they are the texts "NaN", "Infinity" and "-Infinity".
std::string as_json(const StepReport& report);

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
