// SPDX-License-Identifier: Apache-2.0
// The command that this host starts for a runner: how it is stopped, and its environment as a list
// of NAME=value.
#pragma once

#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/plan/job_outline.h"
#include "entrypoint/process/process_runner.h"
#include "entrypoint/ssh/sshd.h"

namespace entrypoint {

/// Sets or replaces one variable.
void set_variable(std::vector<std::string>& environment, std::string_view name,
                  std::string_view value);

/// Our own environment (`inherited`) with the plan's variables, this host's included, and without
/// those that the plan drops. Pure.
std::vector<std::string> planned_environment(const ProgramEnvironment& plan,
                                             std::vector<std::string> inherited);

/// The same, put down as files in the launch folder for the parents of ranks of this host: a
/// session of sshd starts with next to nothing.
void save_rank_environment(const std::filesystem::path& folder, const ProgramEnvironment& plan,
                           std::span<const std::string> planned);

/// Takes the hosts of `before` that `now` lacks, both SM_HOSTS, out of the variables of a host that
/// list hosts, and counts this host's number again. Pure.
void leave_out_lost_hosts(std::vector<std::string>& environment, std::string_view before,
                          std::string_view now);

/// The environment of a rank's program: the one that this host's `train` saved, over it the
/// variables that mpirun brought (`current`), over them those of this host, without the hosts that
/// the job has lost since. Variables of the ssh session itself do not count. The secret of the job
/// is the one that the master put there. Pure but for reading the three files; without the first
/// two the result is `current`.
std::vector<std::string> rank_environment(const std::filesystem::path& folder,
                                          std::vector<std::string> current);

/// `argv` as this host starts it for the runner. `environment` is complete.
Command command_for(const JobOutline& outline, const JobSettings& settings,
                    const std::vector<std::string>& argv, std::vector<std::string> environment);

/// Steps of stopping: a process gets our own signal; mpirun gets SIGUSR1, which the parents of its
/// ranks (rank_exec.h) turn into SIGTERM, again and again until SIGTERM shortly before the end;
/// torchrun gets only the latter, for its workers are told directly. SIGKILL at `stop_after`. Pure.
std::vector<StopStep> stop_steps(Runner runner, std::chrono::milliseconds stop_after);

}  // namespace entrypoint
