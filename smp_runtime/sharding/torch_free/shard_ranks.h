// SPDX-License-Identifier: Apache-2.0
// Division of a replication group into ranks that share one copy of its state.
#pragma once

#include <vector>

namespace smp::sharding {

/// The ranks with which one rank shares state.
struct ShardRanks {
  std::vector<int> shards;    ///< share a copy, this rank among them
  std::vector<int> replicas;  ///< have the same part of other copies, this rank among them
};

/// Consecutive `members` share a copy, `degree` of them each; `degree` divides their number.
ShardRanks split_ranks(const std::vector<int>& members, int degree, int rank);

}  // namespace smp::sharding
