// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/mesh.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::topology {
namespace {

std::string_view letters_of(std::string_view placement) {
  if (placement == "cluster") return "DPT";
  if (placement == "spread") return "TPD";
  constexpr std::string_view kLetters = "DPT";
  if (!std::is_permutation(placement.begin(), placement.end(), kLetters.begin(), kLetters.end())) {
    throw ConfigError(
        "placement_strategy is \"{}\"; expected cluster, spread or an order of the letters D, P, T",
        placement);
  }
  return placement;
}

bool together(Group group, const Coordinates& a, const Coordinates& b) {
  switch (group) {
    case Group::kWorld:
      return true;
    case Group::kMp:
      return a.rdp == b.rdp;
    case Group::kDp:
      return a.pp == b.pp;
    case Group::kPp:
      return a.tp == b.tp && a.rdp == b.rdp;
    case Group::kTp:
      return a.pp == b.pp && a.rdp == b.rdp;
    case Group::kRdp:
      return a.pp == b.pp && a.tp == b.tp;
  }
  return false;
}

constexpr std::array<std::pair<Group, std::string_view>, kGroups.size()> kNames{
    {{Group::kWorld, "WORLD"},
     {Group::kMp, "MP"},
     {Group::kDp, "DP"},
     {Group::kPp, "PP"},
     {Group::kTp, "TP"},
     {Group::kRdp, "RDP"}}};

}  // namespace

std::string_view name(Group group) {
  for (const auto& [known, text] : kNames) {
    if (known == group) return text;
  }
  return {};
}

Group parse_group(std::string_view text) {
  for (const auto& [known, name] : kNames) {
    if (name == text) return known;
  }
  throw InternalError("\"{}\" is no group of ranks", text);
}

Mesh::Mesh(int rdp_size, int pp_size, int tp_size, std::string_view placement)
    : rdp_size_(rdp_size), pp_size_(pp_size), tp_size_(tp_size) {
  int stride = 1;
  for (auto letter = placement.rbegin(); letter != placement.rend(); ++letter) {
    if (*letter == 'D') {
      strides_.rdp = stride;
      stride *= rdp_size;
    } else if (*letter == 'P') {
      strides_.pp = stride;
      stride *= pp_size;
    } else {
      strides_.tp = stride;
      stride *= tp_size;
    }
  }
}

Mesh Mesh::make(const ParallelConfig& config, int world_size) {
  if (config.pipeline_parallel_degree < 1 || config.tensor_parallel_degree < 1) {
    throw ConfigError("partitions {} and tensor_parallel_degree {}; expected at least 1 of each",
                      config.pipeline_parallel_degree, config.tensor_parallel_degree);
  }
  validate_world(config, world_size, std::max(world_size, 1));
  const int pp_size = static_cast<int>(config.pipeline_parallel_degree);
  const int tp_size = static_cast<int>(config.tensor_parallel_degree);
  return Mesh(world_size / (pp_size * tp_size), pp_size, tp_size,
              letters_of(config.placement_strategy));
}

int Mesh::size(Group group) const {
  switch (group) {
    case Group::kWorld:
      return size();
    case Group::kMp:
      return pp_size_ * tp_size_;
    case Group::kDp:
      return tp_size_ * rdp_size_;
    case Group::kPp:
      return pp_size_;
    case Group::kTp:
      return tp_size_;
    case Group::kRdp:
      return rdp_size_;
  }
  return 0;
}

Coordinates Mesh::coordinates(int rank) const {
  SMP_CHECK(contains(rank), "rank {} is not in a mesh of {}", rank, size());
  return {.rdp = rank / strides_.rdp % rdp_size_,
          .pp = rank / strides_.pp % pp_size_,
          .tp = rank / strides_.tp % tp_size_};
}

std::vector<int> Mesh::group(Group group, int rank) const {
  const Coordinates own = coordinates(rank);
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (together(group, own, coordinates(other))) ranks.push_back(other);
  }
  return ranks;
}

int Mesh::rank_in(Group group, int rank) const {
  const std::vector<int> ranks = this->group(group, rank);
  return static_cast<int>(
      std::distance(ranks.begin(), std::lower_bound(ranks.begin(), ranks.end(), rank)));
}

}  // namespace smp::topology
