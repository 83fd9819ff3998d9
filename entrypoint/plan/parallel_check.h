// SPDX-License-Identifier: Apache-2.0
// The model-parallel settings against the ranks that the job will have, before any of them starts.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/launch_plan.h"
#include "smp_runtime/topology/parallel_config.h"

namespace entrypoint {

struct ParallelSettings {
  /// The settings of our own library; nothing when the job has none, or another library's.
  std::optional<smp::topology::ParallelConfig> config;
  std::vector<std::string> notes;
};

/// The job's settings under the runner that was chosen. Under torchrun mp_parameters may be those
/// of the library's second generation, which ours is not: they are passed on unchecked. Throws
/// ConfigError with the words of `smp.init` for unknown, mistyped and contradictory ones.
ParallelSettings read_parallel_settings(const JobConfig& job, Runner runner);

/// Of settings that need several processes, where a plain one a host is started.
std::optional<std::string> one_process_warning(
    const std::optional<smp::topology::ParallelConfig>& config);

/// Ranks by host in launch order, with their coordinates when `config` is there. Throws ConfigError
/// when the settings do not fit the number of ranks; advice goes to `warnings`.
std::vector<RankPlace> place_ranks(const std::optional<smp::topology::ParallelConfig>& config,
                                   const std::vector<std::string>& hosts, int processes_per_host,
                                   int total_processes, std::vector<std::string>& warnings);

}  // namespace entrypoint
