// SPDX-License-Identifier: Apache-2.0
// Records of a job, from its start, and the report that is made of them at its end.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "entrypoint/config/job_config.h"
#include "entrypoint/job/failure/output_record.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/secrets.h"
#include "entrypoint/process/supervisor.h"
#include "entrypoint/report/told_steps.h"
#include "entrypoint/ssh/job_status.h"

namespace entrypoint {

/// Records what the host is busy with and what the script tells of its steps, beside the ranks'
/// records, for jobs that end with a report. References must outlive it.
class JobRecorder {
 public:
  JobRecorder(const JobConfig& job, const JobOutline& outline, OutputRecord& output,
              Supervisor& processes, const Secrets& secrets);

  void stop();

  /// One host says what the job was like, from what all of them recorded. A report that cannot be
  /// written is not worth a job.
  void write_report(const JobStatus& status);

 private:
  const JobConfig& job_;
  const OutputRecord& output_;
  Supervisor& processes_;
  const Secrets& secrets_;
  std::filesystem::file_time_type began_;
  std::filesystem::path folder_;
  std::optional<ChildId> sampler_;
  std::optional<report::StepLog> steps_;
};

/// Warns of an uncaught error in the output of a job that ended well: a shell script goes on after
/// a command that failed. `script` is the one that Python itself ran; or empty.
void warn_of_hidden_error(const std::string& script, const OutputRecord& output);

/// Warns of an empty model, which the service uploads and users find when it is deployed. `began`
/// is when the job did.
void warn_of_empty_model(const JobConfig& job, std::filesystem::file_time_type began);

}  // namespace entrypoint
