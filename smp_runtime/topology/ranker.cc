// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/ranker.h"

#include <algorithm>
#include <string_view>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"

namespace smp::topology {
namespace {

std::vector<int> ranks_from(int first, int count, int stride) {
  std::vector<int> ranks;
  for (int index = 0; index < count; ++index) ranks.push_back(first + index * stride);
  return ranks;
}

/// The hosts of a group, and the ranks of the job that are on each.
struct HostsOfGroup {
  std::vector<std::string> hosts;  ///< each once
  bool have_room = true;           ///< as many ranks as the group has, each
  bool divide = true;              ///< a multiple of them, each
  std::ptrdiff_t least_room = 0;
};

HostsOfGroup hosts_of(const std::vector<int>& group, std::span<const std::string> hosts) {
  HostsOfGroup found;
  const auto size = static_cast<std::ptrdiff_t>(group.size());
  for (const int rank : group) {
    const std::string& host = hosts[static_cast<std::size_t>(rank)];
    if (std::ranges::find(found.hosts, host) != found.hosts.end()) continue;
    const std::ptrdiff_t room = std::ranges::count(hosts, host);
    found.least_room = found.hosts.empty() ? room : std::min(found.least_room, room);
    found.hosts.push_back(host);
    found.have_room = found.have_room && room >= size;
    found.divide = found.divide && room % size == 0;
  }
  return found;
}

/// The same for the first of `groups` that spans hosts without need; `degrees` is what makes their
/// size, and `what` they have to do with each other.
std::optional<std::string> warning_of(const Ranker::Groups& groups,
                                      std::span<const std::string> hosts, std::string_view what,
                                      std::string_view degrees) {
  for (const std::vector<int>& group : groups) {
    const HostsOfGroup at = hosts_of(group, hosts);
    if (at.hosts.size() == 1 || !at.have_room) continue;
    std::vector<std::string> ranks;
    for (const int rank : group) {
      ranks.push_back(fmt::format("{} on {}", rank, hosts[static_cast<std::size_t>(rank)]));
    }
    const std::string advice =
        at.divide ? "give the ranks of a host consecutive numbers"
                  : fmt::format(
                        "{}, {}, does not divide the {} ranks of a host; choose degrees "
                        "that do",
                        degrees, group.size(), at.least_room);
    return fmt::format("{} over several hosts, though each has room for it whole: ranks {}; {}",
                       what, fmt::join(ranks, ", "), advice);
  }
  return std::nullopt;
}

}  // namespace

Ranker::Ranker(int world_size, int shard_degree, int tensor_degree)
    : world_size_(world_size), shard_degree_(shard_degree), tensor_degree_(tensor_degree) {
  if (world_size < 1 || shard_degree < 1 || tensor_degree < 1 || world_size % tensor_degree != 0 ||
      world_size / tensor_degree % shard_degree != 0) {
    throw ConfigError(
        "{} ranks with tensor_parallel_degree {} and shards of {}; expected a multiple of the "
        "product of both",
        world_size, tensor_degree, shard_degree);
  }
}

ShardCoordinates Ranker::coordinates(int rank) const {
  if (rank < 0 || rank >= world_size_) {
    throw ConfigError("rank {} is not in a job of {}", rank, world_size_);
  }
  return {.tensor = rank % tensor_degree_,
          .shard = rank / tensor_degree_ % shard_degree_,
          .replica = rank / block_size()};
}

Ranker::Groups Ranker::tensor_groups() const {
  Groups groups;
  for (int first = 0; first < world_size_; first += tensor_degree_) {
    groups.push_back(ranks_from(first, tensor_degree_, 1));
  }
  return groups;
}

Ranker::Groups Ranker::shard_groups() const {
  Groups groups;
  for (int block = 0; block < world_size_; block += block_size()) {
    for (int first = block; first < block + tensor_degree_; ++first) {
      groups.push_back(ranks_from(first, shard_degree_, tensor_degree_));
    }
  }
  return groups;
}

Ranker::Groups Ranker::replica_groups() const {
  Groups groups;
  for (int first = 0; first < block_size(); ++first) {
    groups.push_back(ranks_from(first, world_size_ / block_size(), block_size()));
  }
  return groups;
}

Ranker::Groups Ranker::blocks() const {
  Groups groups;
  for (int first = 0; first < world_size_; first += block_size()) {
    groups.push_back(ranks_from(first, block_size(), 1));
  }
  return groups;
}

int native_hybrid_degree(int world_size) {
  int degree = 8;
  while (world_size % degree != 0) --degree;
  return degree;
}

std::optional<std::string> placement_warning(const Ranker& ranker,
                                             std::span<const std::string> hosts) {
  SMP_CHECK(hosts.size() == static_cast<std::size_t>(ranker.world_size()), "{} hosts of {} ranks",
            hosts.size(), ranker.world_size());
  const auto tensor = warning_of(ranker.tensor_groups(), hosts, "a tensor-parallel group is spread",
                                 "tensor_parallel_degree");
  if (tensor) return tensor;
  return warning_of(ranker.blocks(), hosts, "a copy of the model is sharded",
                    ranker.tensor_degree() == 1 ? "hybrid_shard_degree"
                                                : "tensor_parallel_degree x hybrid_shard_degree");
}

}  // namespace smp::topology
