// SPDX-License-Identifier: Apache-2.0
// The model-parallel settings against the ranks that the job will have, before any of them starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/runner_choice.h"
#include "smp_runtime/topology/parallel_config.h"

namespace entrypoint {

/// The host of one rank, and its place in the model-parallel grid.
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

struct ParallelSettings {
  /// The settings of our own library; nothing when the job has none, or another library's.
  std::optional<smp::topology::ParallelConfig> config;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// The job's settings under the runner that was chosen. Under torchrun mp_parameters may be those
/// of the library's second generation, which ours is not: they are passed on unchecked. Throws
/// ConfigError with the words of `smp.init` for unknown, mistyped and contradictory ones.
ParallelSettings read_parallel_settings(const JobConfig& job, Runner runner);

/// The warning of settings that need several processes, for a job that starts a plain one a host.
std::optional<std::string> one_process_warning(
    const std::optional<smp::topology::ParallelConfig>& config);

/// The processes of a job: ranks by host in launch order.
struct RankLayout {
  int total_processes = 1;        ///< mpirun's -np
  std::vector<RankPlace> places;  ///< of every rank; empty for kProcess and kTrainingModule
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// `total_processes` over the hosts of the choice, with their coordinates when `config` is there.
/// Throws ConfigError when the settings do not fit the number of ranks. Pure.
RankLayout lay_out_ranks(const RunnerChoice& choice, const HostFacts& facts, int total_processes,
                         const std::optional<smp::topology::ParallelConfig>& config);

}  // namespace entrypoint
