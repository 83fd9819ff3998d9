// SPDX-License-Identifier: Apache-2.0
// Which runner starts the user's program, over which hosts, and what this host does for it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

struct RunnerChoice {
  Runner runner = Runner::kProcess;
  Role role = Role::kAlone;
  std::string reason;              ///< one line
  std::vector<std::string> hosts;  ///< distribution hosts in rank order; all hosts for kProcess
  int processes_per_host = 1;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;  ///< combinations that cannot be meant
};

/// Pure. What SM_LAUNCH_RUNNER names or, without it, the first of MPI, native DDP, torchrun, SMDDP
/// that the job asks for, in this order, on hosts of the distribution groups; a plain process
/// elsewhere. A training module that is not ours
/// is called as it is, on every host. Throws ConfigError for PyTorch-XLA, which is not offered.
RunnerChoice choose_runner(const JobConfig& job, const HostFacts& facts);

/// "MPI", "SMDDP", "torchrun": as users call it.
std::string_view title_of(Runner runner);

}  // namespace entrypoint
