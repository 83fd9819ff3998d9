// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/parallel_check.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/topology/mesh.h"
#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/setting.h"

namespace entrypoint {
namespace {

namespace topology = smp::topology;

// The second generation of the library, which runs under torchrun only.
constexpr std::array<std::string_view, 9> kSecondGeneration = {
    "hybrid_shard_degree",       "sm_activation_offloading", "activation_loading_horizon",
    "fsdp_cache_flush_warnings", "allow_empty_shards",       "tensor_parallel_degree",
    "context_parallel_degree",   "expert_parallel_degree",   "random_seed"};

bool is_in_second(const topology::Setting& setting) {
  return std::ranges::find(kSecondGeneration, setting.name) != kSecondGeneration.end();
}
bool is_in_first(const topology::Setting& setting) {
  return topology::find_parameter(setting.name) != nullptr;
}
bool is_only_in_first(const topology::Setting& setting) {
  return is_in_first(setting) && !is_in_second(setting);
}
bool is_only_in_second(const topology::Setting& setting) {
  return is_in_second(setting) && !is_in_first(setting);
}

std::string note_of(const topology::Settings& settings) {
  std::vector<std::string_view> unknown;
  for (const topology::Setting& setting : settings.entries) {
    if (!is_in_second(setting)) unknown.push_back(setting.name);
  }
  std::string note =
      "mp_parameters are taken for those of the library's second generation and passed on "
      "unchecked";
  if (!unknown.empty()) note += fmt::format("; it does not know {}", fmt::join(unknown, ", "));
  return note;
}

}  // namespace

ParallelSettings read_parallel_settings(const JobConfig& job, Runner runner) {
  if (job.program.mp_parameters.is_null() || runner == Runner::kTrainingModule) return {};
  const topology::Settings settings = topology::parse_settings(
      opt_ml::environment_text(job.program.mp_parameters), "SM_HP_MP_PARAMETERS");
  const bool of_second = std::ranges::none_of(settings.entries, is_only_in_first);
  if (runner == Runner::kTorchrun && of_second && !settings.entries.empty()) {
    return {.notes = {note_of(settings)}};
  }
  const auto newer = std::ranges::find_if(settings.entries, is_only_in_second);
  if (newer != settings.entries.end() && runner != Runner::kTorchrun) {
    throw smp::ConfigError(
        "SM_HP_MP_PARAMETERS: \"{}\" belongs to the library's second generation, which runs under "
        "torchrun, and the {} runner was chosen; set sagemaker_torch_distributed_enabled, or use "
        "the first generation's keys",
        newer->name, title_of(runner));
  }
  ParallelSettings result{.config = topology::make_parallel_config(settings)};
  result.warnings = result.config->warnings;
  return result;
}

std::optional<std::string> one_process_warning(
    const std::optional<topology::ParallelConfig>& config) {
  if (!config) return std::nullopt;
  const auto ranks_per_model = config->pipeline_parallel_degree * config->tensor_parallel_degree;
  if (ranks_per_model <= 1 && config->sharded_data_parallel_degree <= 1) return std::nullopt;
  return fmt::format(
      "mp_parameters ask for partitions={}, tensor_parallel_degree={}, "
      "sharded_data_parallel_degree={}, yet one process per host is started; enable MPI "
      "(sagemaker_mpi_enabled, sagemaker_mpi_num_of_processes_per_host; for a tree of "
      "--make-tree: --processes)",
      config->pipeline_parallel_degree, config->tensor_parallel_degree,
      config->sharded_data_parallel_degree);
}

RankLayout lay_out_ranks(const RunnerChoice& choice, const HostFacts& facts, int total_processes,
                         const std::optional<topology::ParallelConfig>& config) {
  RankLayout layout{.total_processes = total_processes};
  if (!choice.starts_ranks()) return layout;
  const int per_host = choice.processes_per_host;
  if (facts.num_gpus > 0 && per_host > facts.num_gpus) {
    layout.warnings.push_back(fmt::format(
        "{} processes per host, but host {} has {} GPUs: processes will share GPUs or fail; lower "
        "sagemaker_mpi_num_of_processes_per_host",
        per_host, choice.current_host, facts.num_gpus));
  }
  std::optional<topology::Mesh> mesh;
  if (config) {
    const auto advice = topology::validate_world(*config, total_processes, per_host);
    layout.warnings.insert(layout.warnings.end(), advice.begin(), advice.end());
    mesh = topology::Mesh::make(*config, total_processes);
  }
  for (int rank = 0; rank < total_processes; ++rank) {
    // More ranks than slots: the last host's numbers go on, as mpirun's do when it oversubscribes.
    const int host = std::min(rank / per_host, static_cast<int>(choice.hosts.size()) - 1);
    RankPlace place{.rank = rank,
                    .host = choice.hosts[static_cast<std::size_t>(host)],
                    .local_rank = rank - host * per_host};
    if (mesh) {
      const topology::Coordinates at = mesh->coordinates(rank);
      place.grid = {
          .pp = at.pp, .tp = at.tp, .dp = mesh->rank_in(topology::Group::kDp, rank), .rdp = at.rdp};
    }
    layout.places.push_back(std::move(place));
  }
  if (choice.kind == Runner::kMpi && total_processes > choice.slots()) {
    layout.warnings.push_back(fmt::format(
        "{} processes for {} slots ({} hosts of {}): mpirun refuses unless its options say "
        "--oversubscribe",
        total_processes, choice.slots(), choice.hosts.size(), per_host));
  }
  return layout;
}

}  // namespace entrypoint
