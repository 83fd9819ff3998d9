// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/copy_plan.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::checkpoint {

std::vector<FileCopy> plan_copies(std::span<const CopyWish> wishes, std::span<const int> hosts) {
  struct Source {
    std::int64_t bytes = 0;
    std::vector<std::size_t> ranks;
  };
  std::map<std::string, Source> sources;
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    for (const auto& [name, bytes] : wishes[rank].offered) {
      Source& source = sources[name];
      source.bytes = bytes;
      source.ranks.push_back(rank);
    }
  }
  std::vector<FileCopy> plan;
  std::vector<std::int64_t> busy_until(wishes.size());  // bytes that it sends or gets before
  std::set<std::pair<int, std::string>> served;
  for (std::size_t to = 0; to < wishes.size(); ++to) {
    for (const std::string& name : wishes[to].wanted) {
      if (!served.emplace(hosts[to], name).second) continue;
      const auto found = sources.find(name);
      if (found == sources.end()) throw HostError("no host has {}", name);
      Source& source = found->second;
      const std::size_t from = *std::ranges::min_element(
          source.ranks, {}, [&](std::size_t rank) { return busy_until[rank]; });
      busy_until[from] += source.bytes;
      busy_until[to] = std::max(busy_until[to] + source.bytes, busy_until[from]);
      source.ranks.push_back(to);
      plan.push_back({.name = name,
                      .bytes = source.bytes,
                      .from = static_cast<int>(from),
                      .to = static_cast<int>(to)});
    }
  }
  return plan;
}

}  // namespace smp::checkpoint
