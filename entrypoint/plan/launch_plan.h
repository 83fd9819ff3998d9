// SPDX-License-Identifier: Apache-2.0
// What `train` intends to do on this host: a value made by pure functions, printed by `--plan` and
// carried out by job/run.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/config/package_repository.h"
#include "entrypoint/plan/code_source.h"
#include "entrypoint/plan/extra_certificates.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/output_target.h"

namespace entrypoint {

/// How the user's program is started.
enum class Runner {
  kProcess,         ///< one process on every host, which know nothing of each other
  kMpi,             ///< mpirun on the master host; SMP v1, Horovod, anything that speaks MPI
  kSmddp,           ///< mpirun, with what Amazon's data-parallel library expects around it
  kTorchrun,        ///< torchrun on every host
  kTrainingModule,  ///< another framework's, called by Python on every host
};

/// What this host does for the runner.
enum class Role {
  kAlone,   ///< starts the program itself, as every other host does
  kMaster,  ///< runs mpirun over the distribution hosts
  kWorker,  ///< serves the master's ranks over sshd and follows its outcome
};

/// What kind of thing the entry point names.
enum class EntryPointKind {
  kProgram,     ///< a Python script
  kPackage,     ///< Python code with a setup.py
  kModule,      ///< "-m MODULE"
  kCommand,     ///< a script of another language, by the shell
  kExecutable,  ///< a compiled program, or any program of the image: without a shell
};

/// One exported variable. Order matters: it is the order of mpirun's -x flags.
struct Variable {
  std::string name;
  std::string value;

  bool operator==(const Variable&) const = default;
};

/// A file that has to be there before the command starts.
struct PlannedFile {
  std::filesystem::path path;
  std::string content;
};

/// Where one rank runs, and who it is in the model-parallel grid.
struct RankPlace {
  struct Grid {
    int pp = 0;
    int tp = 0;
    int dp = 0;
    int rdp = 0;
  };
  int rank = 0;
  std::string host;
  int local_rank = 0;
  std::optional<Grid> grid;  ///< only for model-parallel jobs
};

/// Another program that is started as the script will be, before it.
struct StartCheck {
  std::vector<std::string> argv;
  bool fails_job = false;  ///< or what it finds is only told
};

struct LaunchPlan {
  Runner runner = Runner::kProcess;
  Role role = Role::kAlone;
  std::string reason;   ///< why this runner, one line
  std::string cluster;  ///< whose engine started the job, and why it is taken for it; may be empty
  std::string current_host;
  std::string master;              ///< first distribution host
  std::vector<std::string> hosts;  ///< distribution hosts in rank order; all hosts for kProcess
  /// No `train` runs on the other hosts but an sshd of the cluster's engine; this one may have no
  /// ranks.
  bool cluster_serves_hosts = false;
  int processes_per_host = 1;
  int total_processes = 1;     ///< ranks of the job: mpirun's -np
  std::string interface_name;  ///< network interface of the job; empty on one host
  std::filesystem::path working_directory;
  std::optional<EntryPointKind> entry_point_kind;  ///< none: a training module looks for itself

  /// Joined before anything is fetched.
  std::optional<ExtraCertificates> certificates;

  /// Fetched into the working directory before anything else. What then lies there may change the
  /// kind of the entry point and what is installed: plan again.
  CodeSource code;

  /// Where pip installs from; none: as pip is configured.
  std::optional<PackageRepository> package_repository;

  /// Where output/intermediate is uploaded while the job runs.
  std::optional<OutputTarget> intermediate_output;

  /// The whole environment of the started command, SM_* and rendezvous variables included, in
  /// table order. Variables of our own environment that are not named here are inherited.
  std::vector<Variable> environment;

  /// Those of `environment` that are this host's own (SM_CURRENT_HOST, SM_NUM_GPUS, …), and
  /// OMP_NUM_THREADS, the share of the host's CPUs of one rank. mpirun does not carry them to other
  /// hosts: each host's `train` gives them to the ranks that start there. Empty without mpirun.
  std::vector<Variable> host_environment;

  /// Inherited variables that must not reach the started command.
  std::vector<std::string> unset;

  /// Written before the start: values that are too long for an environment variable.
  std::vector<PlannedFile> files;

  /// Made executable before the start (mode 0777); empty: nothing.
  std::filesystem::path make_executable;

  /// Run one after the other in the working directory before the start, on every host: pip.
  std::vector<std::vector<std::string>> install;

  /// What is executed on this host; for kMaster the mpirun line; empty for kWorker.
  std::vector<std::string> argv;

  /// What comes before it on hosts that execute something; none: the job starts unchecked.
  std::optional<StartCheck> check;

  /// What starts the user's script, for the log and the failure text: under mpirun the command of
  /// each rank, otherwise `argv`.
  std::vector<std::string> user_command;

  /// SM_TRAINING_ENV as a value, for the log.
  opt_ml::Value training_environment;

  std::vector<RankPlace> ranks;  ///< every rank of the job; empty for kProcess and kTrainingModule

  std::vector<std::string> notes;     ///< decisions worth a line in the log
  std::vector<std::string> warnings;  ///< one line each, said once at start

  /// Ranks are started by mpirun, under our parent of ranks.
  [[nodiscard]] bool runs_mpirun() const {
    return runner == Runner::kMpi || runner == Runner::kSmddp;
  }
  /// One host starts ranks on the others, so that they need keys and sshd.
  [[nodiscard]] bool spans_hosts() const {
    return runs_mpirun() && (hosts.size() > 1 || cluster_serves_hosts);
  }
};

/// Pure: the same job and facts give the same plan on every host of the job, roles and host
/// variables aside. Throws ConfigError for a job that cannot run: no or a forbidden entry point, a
/// runner that is not available, no Python where the script needs one, parallel settings that
/// contradict each other or the number of processes.
LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts);

}  // namespace entrypoint
