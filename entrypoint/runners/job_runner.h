// SPDX-License-Identifier: Apache-2.0
// The start of the job's program on this host, between the plan and its outcome.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/plan/job_outline.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/job_settings.h"
#include "entrypoint/ssh/job_status.h"

namespace entrypoint {

struct Outcome {
  ExitStatus status;
  std::string error_class = "ExecuteUserScriptError";
  std::vector<std::string> command;   ///< what ended so, secrets not yet masked
  std::optional<JobStatus> followed;  ///< a worker's: what the master said, to be repeated
};

class JobRunner {
 public:
  virtual ~JobRunner() = default;

  /// Brings the hosts of the job together. Call it once, before run(). Returns how the job ends
  /// where a stop came first or another host failed. Throws HostError when hosts cannot work
  /// together, ConfigError when something needed is missing.
  virtual std::optional<Outcome> connect() { return std::nullopt; }

  /// Runs `argv`, the plan's command or its check, on a worker what the master starts there. Blocks
  /// until it has ended or was stopped (ProcessRunner::stop_signal()). Throws as connect() does.
  virtual Outcome run(const std::vector<std::string>& argv) = 0;

  /// Copies what the other hosts recorded to where this one does, for the report. Call it once,
  /// between run() and announce(). A master blocks for at most 20 s, which a stop ends; hosts that
  /// do not answer are logged.
  virtual void collect_records() {}

  /// Tells the other hosts how the job ended. Call once after run(), also when it threw or when the
  /// job failed before it. A master blocks for at most 20 s, before its workers were reached for at
  /// most two minutes, a worker that failed before connect() until its master comes or its timeout;
  /// a stop ends both. Hosts that cannot be told are logged.
  virtual void announce(const JobStatus& status) { static_cast<void>(status); }
};

/// By this host's role an MpiMaster or an MpiWorker where mpirun starts ranks on other hosts. Else
/// one command on each host, which needs no sshd and no key: the user's program, torchrun, or
/// mpirun with all its ranks here. `outline` and `processes` must outlive it.
std::unique_ptr<JobRunner> make_runner(const JobOutline& outline, JobSettings settings,
                                       ProcessRunner& processes);

/// `argv` as this host starts it for the runner. `environment` is complete.
Command command_for(const JobOutline& outline, const JobSettings& settings,
                    const std::vector<std::string>& argv, std::vector<std::string> environment);

/// Steps of stopping: a process gets our own signal; mpirun gets SIGUSR1, which the parents of its
/// ranks (rank_exec.h) turn into SIGTERM, again and again until SIGTERM shortly before the end;
/// torchrun gets only the latter, for its workers are told directly. SIGKILL at `stop_after`. Pure.
std::vector<StopStep> stop_steps(Runner runner, std::chrono::milliseconds stop_after);

/// Waits until `child` ends or, after a stop, its stop steps have ended it.
ExitStatus run_to_end(ProcessRunner& processes, ChildId child);

/// The status of a job that a stop ended before its program did.
ExitStatus stopped_status(const ProcessRunner& processes);

}  // namespace entrypoint
