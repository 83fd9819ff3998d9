// SPDX-License-Identifier: Apache-2.0
// Placement of a group's ranks on hosts.
//
// The ranks of a host that have the same place there on every host form a rail: rail l of a host
// exchanges with rail l of the others, so that all ranks of a host use its network together. A host
// with more ranks than the smallest has ranks without a rail; they take part through shared memory.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace smp::topology {

/// A plain value, equal on all ranks but for `rank`.
struct GroupLayout {
  int rank = 0;
  std::vector<int> host_of;   ///< by group rank; hosts in the order of their first rank
  std::vector<int> local_of;  ///< by group rank: its place among its host's ranks
  std::vector<std::vector<int>> ranks_on;  ///< by host: its ranks, ascending
  int rails = 0;

  /// `hosts[r]` tells rank r's host; equal texts are one host.
  static GroupLayout from(std::span<const std::string> hosts, int rank) {
    GroupLayout layout;
    layout.rank = rank;
    std::map<std::string, int> numbers;
    for (size_t one = 0; one < hosts.size(); ++one) {
      const auto [found, is_new] = numbers.emplace(hosts[one], static_cast<int>(numbers.size()));
      if (is_new) layout.ranks_on.emplace_back();
      std::vector<int>& ranks = layout.ranks_on[static_cast<size_t>(found->second)];
      layout.host_of.push_back(found->second);
      layout.local_of.push_back(static_cast<int>(ranks.size()));
      ranks.push_back(static_cast<int>(one));
    }
    size_t smallest = hosts.size();
    for (const auto& ranks : layout.ranks_on) smallest = std::min(smallest, ranks.size());
    layout.rails = static_cast<int>(smallest);
    return layout;
  }

  [[nodiscard]] int size() const { return static_cast<int>(host_of.size()); }
  [[nodiscard]] int hosts() const { return static_cast<int>(ranks_on.size()); }
  [[nodiscard]] int host(int of_rank) const { return host_of[static_cast<size_t>(of_rank)]; }
  [[nodiscard]] int local(int of_rank) const { return local_of[static_cast<size_t>(of_rank)]; }
  [[nodiscard]] int rank_at(int host_number, int local_number) const {
    return ranks_on[static_cast<size_t>(host_number)][static_cast<size_t>(local_number)];
  }
  [[nodiscard]] int my_host() const { return host(rank); }
  [[nodiscard]] int my_local() const { return local(rank); }
  [[nodiscard]] bool has_rail() const { return my_local() < rails; }

  /// Ranks to gather from in two steps that leave all parts in the order of the ranks.
  struct GatherSteps {
    std::vector<int> across_hosts;  ///< those of my place on all hosts
    std::vector<int> within_host;   ///< then those of my host
  };
  /// Empty unless there are several hosts with as many ranks each, at least two, one host's after
  /// the other's.
  [[nodiscard]] std::optional<GatherSteps> gather_steps() const {
    const bool even = std::ranges::all_of(
        ranks_on, [&](const auto& ranks) { return ranks.size() == static_cast<size_t>(rails); });
    if (hosts() == 1 || rails == 1 || !even || !std::ranges::is_sorted(host_of))
      return std::nullopt;
    GatherSteps steps{.across_hosts = {}, .within_host = ranks_on[static_cast<size_t>(my_host())]};
    for (int one = 0; one < hosts(); ++one) steps.across_hosts.push_back(rank_at(one, my_local()));
    return steps;
  }
};

}  // namespace smp::topology
