// SPDX-License-Identifier: Apache-2.0
// A job on this host: what is done between the plan and its outcome.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/launch/job_status.h"
#include "entrypoint/launch/process_runner.h"
#include "entrypoint/plan/launch_plan.h"

namespace entrypoint::launch {

struct JobSettings {
  std::chrono::milliseconds stop_after{110'000};      ///< from the stop signal to the kill
  std::chrono::milliseconds worker_timeout{900'000};  ///< for the other hosts to come up
  int ssh_port = 22;
  std::filesystem::path ssh_key;  ///< mounted private key; empty: keys are exchanged
  std::string job_name;           ///< tells two jobs with equal host names apart; may be empty
  bool wait_for_names = true;     ///< false in Studio's local mode, where names do not resolve
  std::vector<std::string> listen_addresses;  ///< for sshd; empty: all
  std::vector<std::string> inherited;         ///< our own environment
  fetch::TransferSettings transfer;           ///< for what is fetched and uploaded
};

struct Outcome {
  ExitStatus status;
  std::string error_class = "ExecuteUserScriptError";
  std::vector<std::string> command;   ///< what ended so, secrets not yet masked
  std::optional<JobStatus> followed;  ///< a worker's: what the master said, to be repeated
};

class Job {
 public:
  virtual ~Job() = default;

  /// Blocks until the job has ended or was stopped (runner.stop_signal()). Throws HostError when
  /// hosts cannot work together, ConfigError when something needed is missing.
  virtual Outcome run() = 0;

  /// Tells the other hosts how the job ended. Call once after run(), also when it threw or when the
  /// job failed before it. A master blocks for at most 20 s, before its workers were reached for at
  /// most two minutes, a worker that failed before run() until its master comes or its timeout; a
  /// stop ends both. Hosts that cannot be told are logged.
  virtual void announce(const JobStatus& status) { static_cast<void>(status); }
};

/// The job that the plan's runner and role ask for. `plan` and `runner` must outlive it.
std::unique_ptr<Job> make_job(const LaunchPlan& plan, JobSettings settings, ProcessRunner& runner);

/// Steps of stopping: a process gets our own signal; mpirun gets SIGUSR1, which its ranks' shims
/// turn into SIGTERM, again and again until SIGTERM shortly before the end; torchrun gets only the
/// latter, for its workers are told directly. SIGKILL at `stop_after`. Pure.
std::vector<StopStep> stop_steps(Runner runner, std::chrono::milliseconds stop_after);

/// Waits until `child` ends or, after a stop, its stop steps have ended it.
ExitStatus run_to_end(ProcessRunner& runner, ChildId child);

/// The status of a job that a stop ended before its program did.
ExitStatus stopped_status(const ProcessRunner& runner);

}  // namespace entrypoint::launch
