// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/group_layout.h"

#include <algorithm>
#include <map>

namespace smp::topology {

GroupLayout GroupLayout::from(std::span<const std::string> hosts, int rank) {
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

std::optional<GroupLayout::GatherSteps> GroupLayout::gather_steps() const {
  const bool even = std::ranges::all_of(
      ranks_on, [&](const auto& ranks) { return ranks.size() == static_cast<size_t>(rails); });
  if (hosts() == 1 || rails == 1 || !even || !std::ranges::is_sorted(host_of)) return std::nullopt;
  GatherSteps steps{.across_hosts = {}, .within_host = ranks_on[static_cast<size_t>(my_host())]};
  for (int one = 0; one < hosts(); ++one) steps.across_hosts.push_back(rank_at(one, my_local()));
  return steps;
}

}  // namespace smp::topology
