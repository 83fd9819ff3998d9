// SPDX-License-Identifier: Apache-2.0
// Division of a replication group into ranks that share one copy of its state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp::sharding {

/// The ranks with which one rank shares state.
struct ShardRanks {
  std::vector<int> shards;    ///< share a copy, this rank among them
  std::vector<int> replicas;  ///< have the same part of other copies, this rank among them
};

/// Consecutive `members` share a copy, `degree` of them each; `degree` divides their number.
inline ShardRanks split_ranks(const std::vector<int>& members, int degree, int rank) {
  const auto step = static_cast<std::size_t>(degree);
  SMP_CHECK(degree > 0 && members.size() % step == 0, "{} ranks in groups of {}", members.size(),
            degree);
  const auto index = static_cast<std::size_t>(std::ranges::find(members, rank) - members.begin());
  SMP_CHECK(index < members.size(), "rank {} is not of its own group", rank);
  const auto begin = members.begin() + static_cast<std::ptrdiff_t>(index - index % step);
  ShardRanks split{.shards = {begin, begin + degree}, .replicas = {}};
  for (std::size_t at = index % step; at < members.size(); at += step) {
    split.replicas.push_back(members[at]);
  }
  return split;
}

}  // namespace smp::sharding
