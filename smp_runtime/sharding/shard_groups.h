// SPDX-License-Identifier: Apache-2.0
// Sharding of a model's state by a job's settings, and the ranks that share a copy of it.
//
// With sharded data parallelism parameters are gathered when a module is called and given up after
// it; with shard_optimizer_state and in 16-bit training they stay whole, and only their masters are
// kept apart.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <c10/core/ScalarType.h>

#include "smp_runtime/session/session.h"
#include "smp_runtime/sharding/parameter_store.h"

namespace smp::sharding {

struct ShardPlan {
  /// Number of ranks that share the state of parameters, or of each tensor-parallel slice of them.
  int degree = 1;
  /// Number of ranks that share the state of parameters which see a rank's own batch only.
  int own_degree = 1;
  bool on_demand = false;  ///< parameters are gathered for use
  bool cut = true;         ///< a parameter may be cut; else it lies within one rank's shard

  [[nodiscard]] bool cuts_parameters() const { return cut && (degree > 1 || own_degree > 1); }
};

/// Empty where the settings leave a model's state as it is.
std::optional<ShardPlan> plan_shards(const topology::ParallelConfig& config,
                                     const topology::Mesh& mesh);

/// The 16-bit type in which modules compute; Undefined where they keep their own.
at::ScalarType computing_type(const topology::ParallelConfig& config);

/// The c10d groups of this rank among those that hold some parameters alike, their replication
/// group; null where it is alone.
struct ShardGroups {
  int degree = 1;
  int index = 0;           ///< of this rank in its shard group
  std::vector<int> ranks;  ///< of the shard group, in the job
  session::GroupPtr shards;
  session::GroupPtr control;  ///< the ranks of `shards`, for numbers on the CPU; may be the same
  session::GroupPtr replicas;
  session::GroupPtr across_hosts;
  session::GroupPtr within_host;
  std::int64_t divisor = 1;  ///< of gradients, once those of the whole group are added up
};

/// Parameters that see the batches of a whole tensor-parallel group are alike on the ranks of the
/// reduced data-parallel group; all others on those of the data-parallel group. So with tensor
/// parallelism there are two: first of those that see this rank's own batch, then of the others.
/// Equal degrees have the same shard group. Collective over the data-parallel ranks.
std::vector<ShardGroups> make_shard_groups(session::Session& session, const ShardPlan& plan);

/// Options by the job's settings for a store of `elements` on this rank.
StoreOptions store_options(session::Session& session, const ShardPlan& plan,
                           const std::vector<ShardGroups>& groups, std::int64_t elements);

}  // namespace smp::sharding
