// SPDX-License-Identifier: Apache-2.0
// The runner that starts the user's program, its hosts, and this host's part in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"

namespace entrypoint {

/// The program that starts the user's.
enum class Runner {
  kProcess,         ///< one process on every host, which know nothing of each other
  kMpi,             ///< mpirun on the master host; SMP v1, Horovod, anything that speaks MPI
  kSmddp,           ///< mpirun, with what Amazon's data-parallel library expects around it
  kTorchrun,        ///< torchrun on every host
  kTrainingModule,  ///< another framework's, called by Python on every host
};

/// This host's part in it.
enum class Role {
  kAlone,   ///< starts the program itself, as every other host does
  kMaster,  ///< runs mpirun over the distribution hosts
  kWorker,  ///< serves the master's ranks over sshd and follows its outcome
};

struct RunnerChoice {
  Runner kind = Runner::kProcess;
  Role role = Role::kAlone;
  std::string reason;              ///< one line
  std::vector<std::string> hosts;  ///< distribution hosts in rank order; all hosts for kProcess
  std::string current_host;
  std::string master;  ///< first distribution host
  /// No `train` runs on the other hosts but an sshd of the cluster's engine; this one may have no
  /// ranks.
  bool cluster_serves_hosts = false;
  int processes_per_host = 1;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;  ///< combinations that cannot be meant

  /// Ranks are started by mpirun, under our parent of ranks.
  [[nodiscard]] bool runs_mpirun() const { return kind == Runner::kMpi || kind == Runner::kSmddp; }
  /// The processes of a host know each other as ranks.
  [[nodiscard]] bool starts_ranks() const { return runs_mpirun() || kind == Runner::kTorchrun; }
  /// One host starts ranks on the others, so that they need keys and sshd.
  [[nodiscard]] bool spans_hosts() const {
    return runs_mpirun() && (hosts.size() > 1 || cluster_serves_hosts);
  }
  [[nodiscard]] int slots() const { return processes_per_host * static_cast<int>(hosts.size()); }
};

/// Pure. What SM_LAUNCH_RUNNER names or, without it, the first of MPI, native DDP, torchrun, SMDDP
/// that the job asks for, in this order, on hosts of the distribution groups; a plain process
/// elsewhere. A training module that is not ours
/// is called as it is, on every host. Throws ConfigError for PyTorch-XLA, which is not offered.
RunnerChoice choose_runner(const JobConfig& job, const HostFacts& facts);

/// "MPI", "SMDDP", "torchrun": as users call it.
std::string_view title_of(Runner runner);

}  // namespace entrypoint
