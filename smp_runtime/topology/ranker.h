// SPDX-License-Identifier: Apache-2.0
// The ranks of a job of SMP v2: who computes a layer together, who shards a copy of the model, and
// who holds the same shard.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace smp::topology {

/// Place of a rank in each group of its.
struct ShardCoordinates {
  int tensor = 0;
  int shard = 0;
  int replica = 0;

  bool operator==(const ShardCoordinates&) const = default;
};

/// Ranks in blocks, each of which holds one copy of the model. Ranks of a tensor-parallel group are
/// neighbours. Those of a block with the same place in it shard what it holds; blocks follow each
/// other, and are replicas. Groups are in the order of their first ranks, on all ranks the same.
class Ranker {
 public:
  using Groups = std::vector<std::vector<int>>;

  /// Throws ConfigError for a number below 1, and unless the product of the degrees divides
  /// `world_size`.
  Ranker(int world_size, int shard_degree, int tensor_degree);

  [[nodiscard]] int world_size() const { return world_size_; }
  [[nodiscard]] int shard_degree() const { return shard_degree_; }
  [[nodiscard]] int tensor_degree() const { return tensor_degree_; }
  [[nodiscard]] int block_size() const { return shard_degree_ * tensor_degree_; }

  /// Throws ConfigError for a rank outside of the job.
  [[nodiscard]] ShardCoordinates coordinates(int rank) const;

  [[nodiscard]] Groups tensor_groups() const;
  [[nodiscard]] Groups shard_groups() const;
  [[nodiscard]] Groups replica_groups() const;
  [[nodiscard]] Groups blocks() const;

 private:
  int world_size_;
  int shard_degree_;
  int tensor_degree_;
};

/// Degree of FSDP's HYBRID_SHARD where no key says one: 8, as documented for hosts with 8 GPUs;
/// with ranks that 8 does not divide the largest degree below it that does.
int native_hybrid_degree(int world_size);

/// A warning where a tensor-parallel group or a block spans hosts though each of them has room for
/// it, naming the first such; `hosts` by rank.
std::optional<std::string> placement_warning(const Ranker& ranker,
                                             std::span<const std::string> hosts);

}  // namespace smp::topology
