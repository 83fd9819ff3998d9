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

/// The job's settings; nothing when it has no mp_parameters. Throws ConfigError with the words of
/// `smp.init` for unknown, mistyped and contradictory ones.
std::optional<smp::topology::ParallelConfig> read_parallel_config(const JobConfig& job);

/// Ranks by host in launch order, with their coordinates when `config` is there. Throws ConfigError
/// when the settings do not fit the number of ranks; advice goes to `warnings`.
std::vector<RankPlace> place_ranks(const std::optional<smp::topology::ParallelConfig>& config,
                                   const std::vector<std::string>& hosts, int processes_per_host,
                                   int total_processes, std::vector<std::string>& warnings);

}  // namespace entrypoint
