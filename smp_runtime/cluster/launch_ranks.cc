// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/launch_ranks.h"

#include <array>
#include <string_view>
#include <utility>

#include "smp_runtime/cluster/cluster_job.h"
#include "smp_runtime/cluster/host_list.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fnv1a.h"
#include "smp_runtime/core/text.h"

namespace smp::cluster {
namespace {

struct Launcher {
  std::string_view source;
  std::string_view rank;
  std::string_view size;
  std::string_view local_rank;
  std::string_view local_size;
};

constexpr std::string_view kSlurm = "Slurm";
constexpr Launcher kOpenMpi{"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// In the order in which they are asked.
constexpr std::array kLaunchers{
    kOpenMpi, Launcher{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // Variables of a step: a batch script has those of the allocation, but is one process.
    Launcher{kSlurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""}, kTorchrun};

constexpr std::string_view kLoopback = "127.0.0.1";
// Below the range from which Linux takes ports for outgoing connections.
constexpr int kFirstPort = 10000;
constexpr int kPorts = 20000;

std::optional<int> number_of(const Launcher& launcher, std::string_view name,
                             const Variables& variables) {
  const auto entry = variables.find(name);
  if (entry == variables.end()) return std::nullopt;
  const auto number = parse_number<int>(entry->second);
  if (!number) {
    throw ConfigError("{} of {} is \"{}\"; expected a number", name, launcher.source,
                      entry->second);
  }
  return number;
}

/// Number of the step's tasks on this node. SLURM_NTASKS_PER_NODE would be the batch script's.
std::optional<int> slurm_local_size(const Variables& variables) {
  constexpr std::string_view kTasks = "SLURM_STEP_TASKS_PER_NODE";
  const auto tasks = variables.find(kTasks);
  const auto node = number_of(kLaunchers[2], "SLURM_NODEID", variables);
  if (tasks == variables.end() || !node) return std::nullopt;
  const std::vector<int> counts = expand_counts(tasks->second, kTasks);
  if (*node < 0 || *node >= static_cast<int>(counts.size())) {
    throw ConfigError("Slurm says SLURM_NODEID={} and {}={}; expected a count for each node", *node,
                      kTasks, tasks->second);
  }
  return counts[*node];
}

std::optional<LaunchRanks> ranks_of(const Launcher& launcher, const Variables& variables) {
  const auto rank = number_of(launcher, launcher.rank, variables);
  const auto size = number_of(launcher, launcher.size, variables);
  if (!rank || !size) return std::nullopt;
  if (*rank < 0 || *rank >= *size) {
    throw ConfigError("{} says {}={} and {}={}; expected a rank below the size", launcher.source,
                      launcher.rank, *rank, launcher.size, *size);
  }
  if (launcher.source == kSlurm) check_pmix(variables);
  return LaunchRanks{.rank = *rank,
                     .size = *size,
                     .local_rank = number_of(launcher, launcher.local_rank, variables),
                     .local_size = launcher.source == kSlurm
                                       ? slurm_local_size(variables)
                                       : number_of(launcher, launcher.local_size, variables),
                     .source = std::string(launcher.source)};
}

}  // namespace

LaunchRanks launch_ranks(const Variables& variables) {
  if (variables.contains("TORCHELASTIC_RUN_ID")) {
    if (auto ranks = ranks_of(kTorchrun, variables)) return *std::move(ranks);
  }
  for (const Launcher& launcher : kLaunchers) {
    if (auto ranks = ranks_of(launcher, variables)) return *std::move(ranks);
  }
  return {.local_rank = 0, .local_size = 1};
}

LaunchRanks ranks_in_world(int rank, int size, const Variables& variables) {
  const LaunchRanks told = launch_ranks(variables);
  LaunchRanks ranks{.rank = rank, .size = size, .source = "torch.distributed"};
  if (told.launched()) {
    ranks.local_rank = told.local_rank;
    ranks.local_size = told.local_size;
  }
  return ranks;
}

std::string job_number(const Variables& variables) {
  for (const std::string_view name : {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE"}) {
    if (std::string job = value_or(variables, name); !job.empty()) return job;
  }
  const std::string job = value_or(variables, "SLURM_JOB_ID");
  if (job.empty()) return value_or(variables, "PMI_JOBID");
  // Steps of a job may share a node.
  const std::string step = value_or(variables, "SLURM_STEP_ID");
  return step.empty() ? job : job + "." + step;
}

std::optional<int> derived_port(const Variables& variables, int number) {
  const std::string job = job_number(variables);
  if (job.empty()) return std::nullopt;
  return kFirstPort + static_cast<int>((fnv1a(job) % kPorts + number) % kPorts);
}

Variables rank_variables(const Variables& variables) {
  const LaunchRanks ranks = launch_ranks(variables);
  if (!ranks.launched()) return {};
  Variables made{{std::string(kTorchrun.rank), std::to_string(ranks.rank)},
                 {std::string(kTorchrun.size), std::to_string(ranks.size)}};
  if (ranks.local_rank) made.emplace(kTorchrun.local_rank, std::to_string(*ranks.local_rank));
  if (ranks.local_size) made.emplace(kTorchrun.local_size, std::to_string(*ranks.local_size));
  return made;
}

Variables missing_rank_variables(const Variables& variables) {
  const LaunchRanks ranks = launch_ranks(variables);
  if (!ranks.launched()) return {};
  Variables made = rank_variables(variables);
  const std::string host =
      ranks.local_size == ranks.size ? std::string(kLoopback) : first_host(variables);
  if (!host.empty()) made.emplace("MASTER_ADDR", host);
  const auto port = derived_port(variables, 0);
  if (!host.empty() && port) made.emplace("MASTER_PORT", std::to_string(*port));
  std::erase_if(made, [&](const auto& entry) { return variables.contains(entry.first); });
  return made;
}

}  // namespace smp::cluster
