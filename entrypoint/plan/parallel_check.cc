// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/parallel_check.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/topology/mesh.h"
#include "smp_runtime/topology/parameter_table.h"
#include "smp_runtime/topology/ranker.h"
#include "smp_runtime/topology/setting.h"

namespace entrypoint {
namespace {

namespace topology = smp::topology;

constexpr std::string_view kWhere = "SM_HP_MP_PARAMETERS";

bool is_only_in_v1(const topology::Setting& setting) {
  return topology::find_parameter<topology::ParallelConfig>(setting.name) != nullptr &&
         topology::find_parameter<topology::V2Config>(setting.name) == nullptr;
}
bool is_only_in_v2(const topology::Setting& setting) {
  return topology::find_parameter<topology::V2Config>(setting.name) != nullptr &&
         topology::find_parameter<topology::ParallelConfig>(setting.name) == nullptr;
}

ParallelSettings read_v1(const topology::Settings& settings) {
  ParallelSettings result{.v1 = topology::make_parallel_config(settings)};
  result.warnings = result.v1->warnings;
  return result;
}

ParallelSettings read_v2(const topology::Settings& settings) {
  ParallelSettings result{.v2 = topology::make_v2_config({&settings, 1})};
  result.warnings = result.v2->warnings;
  result.notes.emplace_back(
      "mp_parameters are those of SMP v2, torch.sagemaker: torchrun starts the job, and no key is "
      "of SMP v1 alone");
  return result;
}

/// Places and groups of SMP v1's settings.
void lay_out_v1(const topology::ParallelConfig& config, int per_host, RankLayout& layout) {
  const auto advice = topology::validate_world(config, layout.total_processes, per_host);
  layout.warnings.insert(layout.warnings.end(), advice.begin(), advice.end());
  const auto mesh = topology::Mesh::make(config, layout.total_processes);
  for (RankPlace& place : layout.places) {
    const topology::Coordinates at = mesh.coordinates(place.rank);
    place.grid = {{"pp", at.pp},
                  {"tp", at.tp},
                  {"dp", mesh.rank_in(topology::Group::kDp, place.rank)},
                  {"rdp", at.rdp}};
  }
}

/// Those of SMP v2's, as far as they say how the script's FSDP will shard.
void lay_out_v2(const topology::V2Config& config, RankLayout& layout) {
  topology::validate_world(config, layout.total_processes);
  const auto degree = config.shard_degree(layout.total_processes);
  if (!degree) {
    layout.notes.emplace_back(
        "hybrid_shard_degree is 0: the script's strategy of FSDP says over how many ranks a copy "
        "of the model is sharded");
    return;
  }
  const topology::Ranker ranker(layout.total_processes, static_cast<int>(*degree),
                                static_cast<int>(config.tensor_parallel_degree));
  std::vector<std::string> hosts;
  for (RankPlace& place : layout.places) {
    const topology::ShardCoordinates at = ranker.coordinates(place.rank);
    place.grid = {{"tp", at.tensor}, {"shard", at.shard}, {"rep", at.replica}};
    hosts.push_back(place.host);
  }
  if (auto warning = topology::placement_warning(ranker, hosts)) {
    layout.warnings.push_back(*std::move(warning));
  }
  for (RankGroups kind :
       {RankGroups{"tensor", ranker.tensor_groups()}, RankGroups{"shard", ranker.shard_groups()},
        RankGroups{"replica", ranker.replica_groups()}}) {
    if (kind.groups.front().size() > 1) layout.groups.push_back(std::move(kind));
  }
}

}  // namespace

ParallelSettings read_parallel_settings(const JobConfig& job, Runner runner) {
  if (job.program.mp_parameters.is_null() || runner == Runner::kTrainingModule) return {};
  const topology::Settings settings = topology::parse_settings(
      opt_ml::environment_text(job.program.mp_parameters), std::string(kWhere));
  const auto newer = std::ranges::find_if(settings.entries, is_only_in_v2);
  const bool has_newer = newer != settings.entries.end();
  if (runner == Runner::kTorchrun && !settings.entries.empty() &&
      (has_newer || std::ranges::none_of(settings.entries, is_only_in_v1))) {
    return read_v2(settings);
  }
  if (has_newer) {
    throw smp::ConfigError(
        "{}: \"{}\" is a key of SMP v2, torch.sagemaker, which runs under torchrun, and the {} "
        "runner was chosen; set sagemaker_torch_distributed_enabled, or SM_LAUNCH_RUNNER=torchrun",
        kWhere, newer->name, title_of(runner));
  }
  return read_v1(settings);
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
                         const ParallelSettings& settings) {
  RankLayout layout{.total_processes = total_processes};
  if (!choice.starts_ranks()) return layout;
  const int per_host = choice.processes_per_host;
  if (facts.num_gpus > 0 && per_host > facts.num_gpus) {
    layout.warnings.push_back(fmt::format(
        "{} processes per host, but host {} has {} GPUs: processes will share GPUs or fail; lower "
        "sagemaker_mpi_num_of_processes_per_host",
        per_host, choice.current_host, facts.num_gpus));
  }
  for (int rank = 0; rank < total_processes; ++rank) {
    // More ranks than slots: the last host's numbers go on, as mpirun's do when it oversubscribes.
    const int host = std::min(rank / per_host, static_cast<int>(choice.hosts.size()) - 1);
    layout.places.push_back({.rank = rank,
                             .host = choice.hosts[static_cast<std::size_t>(host)],
                             .local_rank = rank - host * per_host,
                             .grid = {}});
  }
  if (settings.v1) lay_out_v1(*settings.v1, per_host, layout);
  if (settings.v2) lay_out_v2(*settings.v2, layout);
  if (choice.kind == Runner::kMpi && total_processes > choice.slots()) {
    layout.warnings.push_back(fmt::format(
        "{} processes for {} slots ({} hosts of {}): mpirun refuses unless its options say "
        "--oversubscribe",
        total_processes, choice.slots(), choice.hosts.size(), per_host));
  }
  return layout;
}

}  // namespace entrypoint
