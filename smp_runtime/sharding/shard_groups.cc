// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/shard_groups.h"

#include <algorithm>
#include <utility>

#include "smp_runtime/core/log.h"
#include "smp_runtime/sharding/torch_free/shard_ranks.h"

namespace smp::sharding {
namespace {

using topology::Group;

std::vector<int> ranks_at(const std::vector<int>& ranks, const std::vector<int>& places) {
  std::vector<int> chosen;
  for (const int place : places) chosen.push_back(ranks[static_cast<std::size_t>(place)]);
  return chosen;
}

/// The groups over which a shard group gathers, in one step or in two.
void connect_shards(session::Session& session, ShardGroups& made) {
  session::Groups& groups = session.groups();
  const topology::GroupLayout layout = session.layout_of(made.ranks);
  const auto steps = layout.gather_steps();
  const bool by_host = session.config().sdp_hierarchical_allgather || !steps;
  made.shards = groups.group_of("shards", made.ranks, by_host);
  const bool gathers_in_steps = groups.shares_by_host() && by_host;
  made.control = gathers_in_steps ? made.shards : groups.cpu_group_of("shard control", made.ranks);
  if (gathers_in_steps) return;
  if (by_host && steps) {
    made.across_hosts =
        groups.group_of("shards across hosts", ranks_at(made.ranks, steps->across_hosts), true);
    made.within_host =
        groups.group_of("shards within a host", ranks_at(made.ranks, steps->within_host), true);
  } else if (layout.hosts() > 1 && session.ranks().rank == 0) {
    SMP_LOG(info,
            "parameters are gathered in one step: {} ranks do not lie evenly on {} hosts, or "
            "sdp_hierarchical_allgather is false",
            made.ranks.size(), layout.hosts());
  }
}

ShardGroups connect(session::Session& session, ShardRanks split, int divisor) {
  ShardGroups made{.degree = static_cast<int>(split.shards.size()), .divisor = divisor};
  const auto own = std::ranges::find(split.shards, session.ranks().rank);
  made.index = static_cast<int>(own - split.shards.begin());
  made.ranks = std::move(split.shards);
  if (made.degree > 1) connect_shards(session, made);
  if (split.replicas.size() > 1) {
    made.replicas = session.groups().group_of("replicas of shards", split.replicas, true);
  }
  return made;
}

/// The ranks with the same shards as `own` in all copies of all tensor ranks.
std::vector<int> replicas_of_peers(session::Session& session, int degree) {
  std::vector<int> all;
  for (const int peer : session.groups().ranks(Group::kTp)) {
    const ShardRanks split = split_ranks(session.mesh().group(Group::kRdp, peer), degree, peer);
    all.insert(all.end(), split.replicas.begin(), split.replicas.end());
  }
  std::ranges::sort(all);
  return all;
}

}  // namespace

std::optional<ShardPlan> plan_shards(const topology::ParallelConfig& config,
                                     const topology::Mesh& mesh) {
  if (config.sharded_data_parallel_degree > 1) {
    const auto degree = static_cast<int>(config.sharded_data_parallel_degree);
    return ShardPlan{.degree = degree, .own_degree = degree, .on_demand = true};
  }
  if (config.shard_optimizer_state) {
    return ShardPlan{.degree = mesh.size(Group::kRdp), .own_degree = mesh.size(Group::kDp)};
  }
  if (computing_type(config) != at::ScalarType::Undefined) return ShardPlan{};
  return std::nullopt;
}

at::ScalarType computing_type(const topology::ParallelConfig& config) {
  if (config.fp16) return at::kHalf;
  return config.bf16 ? at::kBFloat16 : at::ScalarType::Undefined;
}

std::vector<ShardGroups> make_shard_groups(session::Session& session, const ShardPlan& plan) {
  const topology::Mesh& mesh = session.mesh();
  const int rank = session.ranks().rank;
  const auto& all = session.groups().ranks(Group::kDp);
  const int every = mesh.size(Group::kDp);
  if (mesh.size(Group::kTp) == 1) {
    return {connect(session, split_ranks(all, plan.own_degree, rank), every)};
  }
  const ShardRanks slices = split_ranks(session.groups().ranks(Group::kRdp), plan.degree, rank);
  ShardRanks wide =
      plan.own_degree == plan.degree
          ? ShardRanks{.shards = slices.shards, .replicas = replicas_of_peers(session, plan.degree)}
          : split_ranks(all, plan.own_degree, rank);
  std::vector<ShardGroups> groups;
  groups.push_back(connect(session, std::move(wide), every));
  groups.push_back(connect(session, slices, mesh.size(Group::kRdp)));
  return groups;
}

StoreOptions store_options(session::Session& session, const ShardPlan& plan,
                           const std::vector<ShardGroups>& groups, std::int64_t elements) {
  const topology::ParallelConfig& config = session.config();
  StoreOptions options{.groups = {},
                       .compute_type = computing_type(config),
                       .on_demand = plan.on_demand,
                       .persistence_threshold = config.sdp_param_persistence_threshold,
                       // A bucket as large as its default would hold every gradient of most models.
                       .bucket = std::min(config.sdp_reduce_bucket_size,
                                          std::max(std::int64_t{1} << 16, elements / 16)),
                       .most_unsharded = config.sdp_max_live_parameters,
                       .cut = plan.cut};
  for (const ShardGroups& group : groups) {
    options.groups.push_back(
        {.exchange = {.shards = group.shards,
                      // A control header tells whether all ranks mean the same exchange, which what
                      // modules a rank runs may make untrue.
                      .control = plan.on_demand ? group.control : session::GroupPtr(),
                      .replicas = group.replicas,
                      .across_hosts = group.across_hosts,
                      .within_host = group.within_host,
                      .watch = session.barriers().watch(),
                      .recorder = session.recorder(),
                      .unit_name = {}},
         .index = group.index,
         .divisor = group.divisor});
  }
  return options;
}

}  // namespace smp::sharding
