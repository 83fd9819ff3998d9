// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/parallel_check.h"

#include <algorithm>

#include "opt_ml_layout/python_text.h"
#include "smp_runtime/topology/mesh.h"
#include "smp_runtime/topology/setting.h"

namespace entrypoint {

namespace topology = smp::topology;

std::optional<topology::ParallelConfig> read_parallel_config(const JobConfig& job) {
  if (job.mp_parameters.is_null()) return std::nullopt;
  const std::string text = opt_ml::environment_text(job.mp_parameters);
  return topology::make_parallel_config(topology::parse_settings(text, "SM_HP_MP_PARAMETERS"));
}

std::vector<RankPlace> place_ranks(const std::optional<topology::ParallelConfig>& config,
                                   const std::vector<std::string>& hosts, int processes_per_host,
                                   int total_processes, std::vector<std::string>& warnings) {
  std::optional<topology::Mesh> mesh;
  if (config) {
    const auto advice = topology::validate_world(*config, total_processes, processes_per_host);
    warnings.insert(warnings.end(), advice.begin(), advice.end());
    mesh = topology::Mesh::make(*config, total_processes);
  }
  std::vector<RankPlace> ranks;
  for (int rank = 0; rank < total_processes; ++rank) {
    // More ranks than slots: the last host's numbers go on, as mpirun's do when it oversubscribes.
    const int host = std::min(rank / processes_per_host, static_cast<int>(hosts.size()) - 1);
    RankPlace place{.rank = rank,
                    .host = hosts[static_cast<std::size_t>(host)],
                    .local_rank = rank - host * processes_per_host};
    if (mesh) {
      const topology::Coordinates at = mesh->coordinates(rank);
      place.grid = {
          .pp = at.pp, .tp = at.tp, .dp = mesh->rank_in(topology::Group::kDp, rank), .rdp = at.rdp};
    }
    ranks.push_back(std::move(place));
  }
  return ranks;
}

}  // namespace entrypoint
