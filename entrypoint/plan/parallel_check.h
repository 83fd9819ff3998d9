// SPDX-License-Identifier: Apache-2.0
// The model-parallel settings against the ranks that the job will have, before any of them starts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/runner_choice.h"
#include "smp_runtime/topology/parallel_config.h"
#include "smp_runtime/topology/v2_config.h"

namespace entrypoint {

/// The host of one rank, and its place in the model-parallel grid.
struct RankPlace {
  /// Number of the rank in its group along an axis.
  struct Coordinate {
    std::string_view axis;  ///< "pp", "tp"
    int number = 0;

    bool operator==(const Coordinate&) const = default;
  };
  int rank = 0;
  std::string host;
  int local_rank = 0;
  std::vector<Coordinate> grid;  ///< only for model-parallel jobs; the same axes for all ranks
};

/// Groups of ranks of one kind.
struct RankGroups {
  std::string_view kind;  ///< "tensor"
  std::vector<std::vector<int>> groups;
};

/// The settings of our own library; of neither generation when the job has none, or another
/// library's.
struct ParallelSettings {
  std::optional<smp::topology::ParallelConfig> v1;
  std::optional<smp::topology::V2Config> v2;
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// The job's settings under the runner that was chosen. Under torchrun they are those of SMP v2
/// where a key is of SMP v2 alone, or none is of SMP v1 alone: what SMP v1 takes of the keys that
/// both have, and no other key of its own, SMP v2 takes as well. Throws ConfigError with the words
/// of `smp.init` and of `torch.sagemaker.init` for unknown, mistyped and contradictory ones.
ParallelSettings read_parallel_settings(const JobConfig& job, Runner runner);

/// The warning of settings that need several processes, for a job that starts a plain one a host.
std::optional<std::string> one_process_warning(
    const std::optional<smp::topology::ParallelConfig>& config);

/// The processes of a job: ranks by host in launch order.
struct RankLayout {
  int total_processes = 1;         ///< mpirun's -np
  std::vector<RankPlace> places;   ///< of every rank; empty for kProcess and kTrainingModule
  std::vector<RankGroups> groups;  ///< SMP v2's, those of one rank each left out
  std::vector<std::string> notes;
  std::vector<std::string> warnings;
};

/// `total_processes` over the hosts of the choice, with their coordinates where the settings say
/// them. Throws ConfigError when the settings do not fit the number of ranks. Pure.
RankLayout lay_out_ranks(const RunnerChoice& choice, const HostFacts& facts, int total_processes,
                         const ParallelSettings& settings);

}  // namespace entrypoint
