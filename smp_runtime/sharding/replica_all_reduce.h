// SPDX-License-Identifier: Apache-2.0
// The second hop of gradients: shards are added up over the replicas of the model, piece by piece.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smp_runtime/sharding/shard_exchange.h"
#include "smp_runtime/sharding/sharded_unit.h"

namespace smp::sharding {

/// A run of an arena that is added up at once.
struct ReplicaChunk {
  std::size_t arena = 0;
  std::int64_t offset = 0;
  std::int64_t elements = 0;
  std::vector<int> units;  ///< whose shards it holds

  bool operator==(const ReplicaChunk&) const = default;
};

/// All trained units, in the order in which a backward leaves them: from the last on, those whose
/// parameters are of many modules at the end. A chunk is as large as this rank's shard of a bucket
/// of `bucket` elements where the next unit lies beside it in its arena.
std::vector<ReplicaChunk> plan_chunks(std::span<const ShardedUnit> units, std::int64_t bucket);

/// Starts chunks in their planned order, each once all of its units and all chunks before it are
/// final. The order thus follows from the plan, not from what replicas compute: those that run
/// other modules wait for each other and do not mix anything up. Not thread-safe.
class ReplicaAllReduce {
 public:
  /// `units` and `arenas` must outlive this.
  ReplicaAllReduce(std::vector<ShardedUnit>& units, std::vector<Arena>& arenas,
                   std::int64_t bucket);

  /// A unit's shard of gradients is final in this step, unless there is a surprise.
  void set_final(int unit);
  /// True if the all-reduce of a unit's shard has started: gradients that come later must not be
  /// added to the shard.
  [[nodiscard]] bool started(int unit) const;
  /// Starts what is left and waits for everything; then all begins anew.
  void finish();
  /// True if `mine` is true on any replica of the parameters that most ranks hold, whose replicas
  /// are those of all others, too. Collective over them.
  [[nodiscard]] bool any(bool mine);

 private:
  void start_next();

  std::vector<ShardedUnit>& units_;
  std::vector<Arena>& arenas_;
  const std::vector<ReplicaChunk> chunks_;
  std::vector<std::size_t> chunk_of_;     ///< by unit; those of no chunk are not trained
  std::vector<bool> final_;               ///< by unit
  std::vector<ShardExchange::Sum> sums_;  ///< one for each chunk that was started
};

}  // namespace smp::sharding
