// SPDX-License-Identifier: Apache-2.0
// This process's rank in the job, as its launcher gives it; the one reader of these variables.
#pragma once

#include <optional>
#include <string>

#include "smp_runtime/core/variables.h"

namespace smp::cluster {

struct LaunchRanks {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  ///< among the processes of its host; unset: not told
  std::optional<int> local_size;
  std::string source = "no launcher";  ///< who said so, for messages

  [[nodiscard]] bool launched() const { return source != "no launcher"; }
  bool operator==(const LaunchRanks&) const = default;
};

/// Asks the variables of Open MPI, PMI, Slurm and torchrun, in this order; else one process. A
/// process of torchrun believes torchrun, whatever it inherits from what started torchrun; a batch
/// script of Slurm, which is no step, is one process. Throws ConfigError where numbers do not fit
/// together. Pure.
LaunchRanks launch_ranks(const Variables& variables);

/// In a c10d world that is there: a launcher tells the local ones only. Throws as above. Pure.
LaunchRanks ranks_in_world(int rank, int size, const Variables& variables);

/// The launcher's number of the job on this machine; empty where it gives none.
std::string job_number(const Variables& variables);

/// A port for the rendezvous of that job, the same on all its ranks; `number` counts rendezvous of
/// a job, whose earlier ports may be open yet. Nothing without a job number.
std::optional<int> derived_port(const Variables& variables, int number);

/// RANK, WORLD_SIZE, LOCAL_RANK and LOCAL_WORLD_SIZE, which scripts read, as launch_ranks() has
/// them; of the local ones those that the launcher told. Empty for a process that no launcher
/// started.
Variables rank_variables(const Variables& variables);

/// rank_variables() and the place of the rendezvous, where all ranks are on one host or Slurm names
/// the first one, as far as they are unset: what `init_process_group()` without arguments needs.
Variables missing_rank_variables(const Variables& variables);

}  // namespace smp::cluster
