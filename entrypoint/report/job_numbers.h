// SPDX-License-Identifier: Apache-2.0
// A job's record in a few numbers, by which the rules judge. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "entrypoint/report/job_record.h"
#include "smp_runtime/schedule/task_order.h"

namespace entrypoint::report {

/// The later steps of one rank: shares of their time, 0 to 1.
struct RankNumbers {
  int rank = 0;
  std::string host;
  int stage = 0;         ///< of the pipeline
  int tensor_rank = 0;   ///< of the ranks that split layers
  int replica = 0;       ///< of the ranks that hold the same
  double computed = 0;   ///< running modules
  double waited = 0;     ///< for messages of the pipeline
  double gathered = 0;   ///< waiting for parameters of other ranks
  double reduced = 0;    ///< waiting for sums of gradients
  double exchanged = 0;  ///< waiting for tensor parallelism
  double optimizer = 0;
  double data = 0;           ///< outside of steps and optimizers
  double other = 0;          ///< within a step, and nothing of the above
  double compute_ms = 0;     ///< a step
  double step_ms = 0;        ///< from begin to begin
  std::int64_t bytes = 0;    ///< sent, a step
  std::int64_t samples = 0;  ///< of its own batch, a step
};

/// Figures of a step that the partitioner predicts and the record shows.
struct StepFigures {
  double step_ms = 0;      ///< in smp.step
  double use = 0;          ///< mean share of it in which a partition works
  std::int64_t bytes = 0;  ///< of the fullest partition: the model's state, and activations
};

/// Numbers of a job that trained; `ranks` has those with steps alone.
struct JobNumbers {
  std::vector<RankNumbers> ranks;
  std::int64_t steps = 0;         ///< of the first rank, or the last one that the script told of
  double p50_ms = 0, p95_ms = 0;  ///< of its steps
  double samples_per_second = 0;  ///< of all replicas
  int stages = 1;
  smp::schedule::ScheduleShape shape;    ///< of the pipeline's schedule
  std::optional<StepFigures> predicted;  ///< none: no partitioner decided, or it did not say
  StepFigures measured;
  int hosts = 1;
  double overflow_share = 0;  ///< of the steps
  /// Growth of a rank's memory over the second half of the job, of what it was at its begin; the
  /// largest of all ranks.
  struct Growth {
    int rank = 0;
    double share = 0;
    std::int64_t bytes_a_step = 0;
  };
  std::optional<Growth> growth;
  /// The largest share of a host's memory that was in use.
  double fullest_share = 0;
  std::string fullest_host;

  /// Mean over ranks.
  [[nodiscard]] double mean(double RankNumbers::*what) const;
};

JobNumbers numbers_of(const JobRecord& job);

/// The most bytes that each of these kinds of memory took on a rank, together.
std::int64_t most_bytes(const RankRecord& record, std::span<const char* const> kinds);

}  // namespace entrypoint::report
