// SPDX-License-Identifier: Apache-2.0
// Facts of the job and its steps, besides their times, in a rank's record, for the report.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/metrics/outputs/step_report.h"
#include "smp_runtime/partition/job_partition.h"
#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/record/recorder.h"
#include "smp_runtime/session/session.h"

namespace smp::metrics {

/// Facts of this process; the same on all ranks.
struct JobFacts {
  std::string_view device;   ///< its name
  std::string_view library;  ///< the version
  std::string_view torch;
};

/// Records the facts for the report's card of the job. Does nothing without a recorder.
void note_job(session::Session& session, const JobFacts& facts);
/// Tells the placement of the model's parts, for the log and the report's card: the first rank's
/// call. The log's tree is folded where it is long, unless it shows details.
void tell_partition(session::Session& session, const partition::JobPartition& decided,
                    const partition::ModuleTree& tree);

/// One thread at a time.
class StepRecords {
 public:
  /// `ledger` says what the model's state takes here, `formula` what it would by arithmetic (0: no
  /// formula). [bytes]
  StepRecords(std::shared_ptr<record::Recorder> recorder, std::function<MemoryLedger()> ledger,
              std::function<std::int64_t()> formula);

  /// `samples`: of this rank's batch. Now and then a line of memory: every second at first, and
  /// less often in long jobs.
  void end_step(std::int64_t samples, bool trained);
  /// Something that the report marks on its time axis, such as a checkpoint.
  void event(std::string_view kind, std::string_view text);

 private:
  const std::shared_ptr<record::Recorder> recorder_;
  const std::function<MemoryLedger()> ledger_;
  const std::function<std::int64_t()> formula_;
  Clock::duration interval_;
  Clock::time_point due_;
  std::int64_t lines_ = 0;
};

}  // namespace smp::metrics
