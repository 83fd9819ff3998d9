// SPDX-License-Identifier: Apache-2.0
// The start of the job's program on this host, between the plan and its outcome.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "entrypoint/plan/job_outline.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/job_status.h"
#include "entrypoint/ssh/sshd.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {

struct Outcome {
  ExitStatus status;
  std::string error_class = "ExecuteUserScriptError";
  std::vector<std::string> command;   ///< what ended so, secrets not yet masked
  std::optional<JobStatus> followed;  ///< a worker's: what the master said, to be repeated
};

/// A host on which ranks ran is gone.
class LostHost : public smp::HostError {
 public:
  LostHost(std::string host, const std::string& why)
      : HostError("{}", why), host_(std::move(host)) {}

  [[nodiscard]] const std::string& host() const { return host_; }

 private:
  std::string host_;
};

class JobRunner {
 public:
  virtual ~JobRunner() = default;

  /// Brings the hosts of the job together. Call it once, before run(). Returns how the job ends
  /// where a stop came first or another host failed. Throws HostError when hosts cannot work
  /// together, ConfigError when something needed is missing.
  virtual std::optional<Outcome> connect() { return std::nullopt; }

  /// Runs `argv`, the plan's command or its check, on a worker what the master starts there. Blocks
  /// until it has ended or was stopped (ProcessRunner::stop_signal()). Throws as connect() does,
  /// and a master LostHost. May be called again, also after that, with the outline for the hosts
  /// that are left.
  virtual Outcome run(const std::vector<std::string>& argv) = 0;

  /// Hosts on which run() started ranks, and that do not answer now. A master blocks for at most
  /// 15 s.
  virtual std::vector<std::string> silent_hosts() { return {}; }

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

/// Waits until `child` ends or, after a stop, its stop steps have ended it.
ExitStatus run_to_end(ProcessRunner& processes, ChildId child);

/// The status of a job that a stop ended before its program did.
ExitStatus stopped_status(const ProcessRunner& processes);

/// Starts torchrun and blocks until it has ended. A stop goes to the workers, not to torchrun: told
/// itself, torchrun gives them 30 seconds at most and ends with an error however well they end.
/// When the workers have ended by themselves it does so, too, and with success if they had. Before
/// it has workers torchrun gets the stop. SIGUSR1 and SIGUSR2 go to the workers alone.
Outcome run_torchrun(ProcessRunner& runner, const Command& command);

/// The workers among the descendants of `root`: torchrun makes each the leader of a session, and
/// itself is in the process group of a child of `root`. Reads /proc.
std::vector<pid_t> torchrun_workers(pid_t root);

}  // namespace entrypoint
