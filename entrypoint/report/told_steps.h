// SPDX-License-Identifier: Apache-2.0
// Steps of a script that does not use smp, as the script tells of them: by lines of its output, or
// in a file in the format of SMP_METRICS.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/record/record_file.h"

namespace entrypoint::report {

struct ToldStep {
  double time = 0;  ///< [s] since 1970
  std::int64_t step = 0;
  double seconds = 0;  ///< that it took, or the mean since the last one told; 0: unknown
  double loss = std::numeric_limits<double>::quiet_NaN();  ///< not a number: it is not told
};

struct ToldSteps {
  std::string source;  ///< whose they are: "algo-1's output", a file
  std::vector<ToldStep> steps;
};

/// A line of output about a step: the numbers behind the words step (or iteration) and loss, as in
/// "step 12: loss 0.43", "Iter 3/10 loss=1.2e-3" and "{'loss': 0.5, 'step': 7}". A line without a
/// loss tells nothing.
struct ToldLine {
  std::optional<std::int64_t> step;
  std::optional<double> loss;
};
ToldLine read_told_line(std::string_view line);

/// Keeps what one rank tells in a file, for the report: of many steps some. The first rank that
/// tells a loss counts, others are told by the same script. The file is made with the first step.
class StepLog {
 public:
  StepLog(std::filesystem::path folder, std::string host)
      : folder_(std::move(folder)), host_(std::move(host)) {}

  void add(int rank, std::string_view line);
  void flush() {
    if (file_) file_->flush();
  }

 private:
  std::filesystem::path folder_;
  std::string host_;
  std::unique_ptr<smp::record::RecordFile> file_;
  int rank_ = 0;
  std::int64_t step_ = 0;
  double interval_ = 0, due_ = 0;  // [s]
  std::int64_t kept_ = 0;
};

/// Reads the file of a StepLog; lines that cannot be read are left out.
ToldSteps read_step_log(const std::filesystem::path& file);

/// A file of SMP_METRICS, or one in its format: JSON objects with step, seconds and loss.
ToldSteps read_metrics(const std::filesystem::path& file);

}  // namespace entrypoint::report
