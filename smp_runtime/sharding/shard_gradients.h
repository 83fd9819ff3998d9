// SPDX-License-Identifier: Apache-2.0
// Gradients of a step, from the modules' parameters to means in the owners' shards.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/sharding/flatten.h"
#include "smp_runtime/sharding/reduce_scatter_buckets.h"
#include "smp_runtime/sharding/replica_all_reduce.h"
#include "smp_runtime/sharding/sharded_unit.h"

namespace smp::sharding {

/// The first hop reduces a unit's gradients to the shards of their owners as soon as all of them
/// are there; the second adds up shards over replicas, once an accumulation, beside the backward
/// that is its last. Not thread-safe.
class ShardGradients {
 public:
  struct Options {
    /// True: gradients are reduced as they come. False: at the end of an accumulation.
    bool on_demand = true;
    std::int64_t bucket = 0;  ///< [elements]
  };

  /// All but the options and `groups` must outlive this. `unit_of` is by parameter.
  ShardGradients(Options options, const std::vector<ReplicationGroup>& groups,
                 const std::vector<StoredParameter>& parameters, const std::vector<int>& unit_of,
                 std::vector<ShardedUnit>& units, std::vector<Arena>& arenas);

  /// A step begins that, if `due`, ends an accumulation after `backwards` of them. More or fewer
  /// come out right, too, but with less of the second hop beside the last.
  void begin_step(bool due, int backwards);
  /// Autograd has just added `gradient`, which may be undefined, to that of a parameter.
  void note(std::size_t parameter, const at::Tensor& gradient);
  void end_backward();
  void finish_step(bool due);
  void zero();
  /// Drops what parameters have that was not reduced yet.
  void forget(const std::vector<int>& parameters);
  /// Trained parameters to which no gradient of this rank came since they were zeroed.
  [[nodiscard]] std::vector<int> unreached() const;
  /// Zeros where nothing was accumulated.
  void clear_fresh();

 private:
  ShardedUnit& at(int number) { return units_.at(static_cast<std::size_t>(number)); }
  void keep(std::size_t parameter);
  void add_own(int number, std::size_t parameter, const at::Tensor& grad);
  void flush_own();
  void clear_unwritten();
  void complete(int number);
  at::Tensor take_flat(ShardedUnit& unit);
  void add_sum(int number, const at::Tensor& sum);
  void flush();
  void add_late();
  void begin_adding();

  const Options options_;
  const std::vector<StoredParameter>& parameters_;
  const std::vector<int>& unit_of_;
  std::vector<ShardedUnit>& units_;
  std::vector<Arena>& arenas_;
  std::deque<ReduceScatterBuckets> buckets_;  ///< by number of the group
  ReplicaAllReduce replicas_;
  std::vector<std::size_t> place_of_;  ///< by parameter, in its unit
  std::vector<std::uint8_t> came_;     ///< by parameter: whether a gradient did

  /// Gradients of a unit whose group is one, until they are worth a kernel.
  struct Own {
    int unit = -1;
    std::int64_t elements = 0;
    std::vector<FlatPart> parts;
  };
  Own own_;
  int backwards_left_ = 0;                  ///< of the step that ends an accumulation; 0: not known
  std::map<std::size_t, at::Tensor> wide_;  ///< sums of 16-bit gradients, until the step's end
  std::map<int, at::Tensor> late_;  ///< sums that came when their unit's second hop was under way
  bool averaged_ = false;           ///< the shards of gradients hold means over all replicas
};

}  // namespace smp::sharding
