// SPDX-License-Identifier: Apache-2.0
// The job as variables and files of a cluster's manager describe it; the one reader of these, for
// `train` and for scripts that are started without it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/core/variables.h"

namespace smp::cluster {

/// The system that started this process.
enum class Cluster {
  kSlurm,     ///< a step of Slurm, or its batch script
  kHostfile,  ///< Kubernetes' MPIJob, or TrainJob with `mpi:`: a launcher and its hostfile
  kTorch,     ///< Kubernetes' TrainJob with `torch:`: the PET_ variables of torchrun
  kBatch,     ///< AWS Batch, a multi-node parallel job
};

struct ClusterJob {
  Cluster cluster = Cluster::kSlurm;
  std::string name;                ///< "Slurm job 7"
  std::string reason;              ///< which variables or files say so
  int host_count = 1;              ///< of the job
  std::vector<std::string> hosts;  ///< in the order of ranks; empty: only main_host is known yet
  std::optional<int> host_number;  ///< of this host in `hosts`; none: it is not one of them
  std::vector<int> tasks;          ///< processes that the engine wants on each host; empty: any
  std::string main_host;           ///< where rank 0 is; empty: on this host, under no name yet
  bool whole = true;               ///< this process is one of those that the engine starts on each
                                   ///< host; a batch script of several nodes is not
  int restarts = 0;                ///< how often the engine has started the job again

  /// "Slurm job 7, 2 nodes".
  [[nodiscard]] std::string title() const;
  /// The largest number of tasks of a host, if the engine has said one.
  [[nodiscard]] std::optional<int> tasks_per_host() const;
  bool operator==(const ClusterJob&) const = default;
};

/// Path of the hostfile of an MPI launcher; empty where no variable names one.
std::string hostfile_path(const Variables& variables);

/// The job by its variables and the text of its hostfile (none: no such file); none outside of any
/// cluster. Throws ConfigError, in one sentence, for variables that are missing or contradict each
/// other or the hostfile. Pure.
std::optional<ClusterJob> read_cluster(const Variables& variables,
                                       const std::optional<std::string>& hostfile);

/// Throws ConfigError for a step of Slurm whose PMIx (srun --mpi=pmix) Open MPI could not talk to:
/// its first call would end the process with a screen of text. Pure.
void check_pmix(const Variables& variables);

/// The host of rank 0 as Slurm's variables say; empty elsewhere. Pure.
std::string first_host(const Variables& variables);

}  // namespace smp::cluster
