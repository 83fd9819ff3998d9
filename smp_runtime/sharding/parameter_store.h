// SPDX-License-Identifier: Apache-2.0
// Parameters, gradients and masters of a model, sharded over a group of ranks.
//
// Each unit (see unit_layout.h) goes through SHARDED -> INFLIGHT -> LIVE -> SHARDED. While it is
// unsharded its parameters are views of one gathered buffer. Else the buffer has no memory, and a
// placeholder stands for each parameter, which answers for shape and type. The buffer's storage
// object stays the same, so that tensors which autograd saved come back to life when the unit is
// gathered again.
//
// Operators have the values that they read gathered: each that gets a parameter or a view of one,
// in a forward, in a backward or in a step's function, comes here first (value_reads.h). Calls of
// modules say so earlier, which makes it fast. A read that not all ranks make is an error, never a
// number.
//
// Gradients are reduced to the owners' shards in buckets, in 32 bits at least, and summed over
// replicas only at the boundary of accumulation: the two hops of MiCS (arXiv:2205.00119).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/sharding/shard_exchange.h"
#include "smp_runtime/sharding/sharded_unit.h"
#include "smp_runtime/sharding/torch_free/gather_order.h"
#include "smp_runtime/sharding/torch_free/unit_layout.h"

namespace smp::sharding {

/// As `ReplicationGroup`, whose exchange the store makes.
struct ReplicationGroupOptions {
  ExchangeOptions exchange;  ///< without unit_name, which the store gives
  int index = 0;             ///< of this rank in its shard group
  std::int64_t divisor = 1;
};

struct StoreOptions {
  /// Groups of ranks that hold parameters alike. Of several, the replicas of one are also replicas
  /// of the others, or the other way round; and if `on_demand`, all have the same shard group.
  std::vector<ReplicationGroupOptions> groups;
  /// 16-bit type in which modules compute; the masters are float then. Undefined: parameters keep
  /// their type, and are their own masters, as complex ones always.
  at::ScalarType compute_type = at::ScalarType::Undefined;
  /// True: parameters are gathered for use, gradients reduced as they come. False: all parameters
  /// stay whole, gradients are reduced at the end of a step.
  bool on_demand = true;
  std::int64_t persistence_threshold = 0;  ///< [elements]
  std::int64_t bucket = 0;                 ///< [elements] of a bucket of gradients
  std::int64_t most_unsharded = 0;         ///< [elements] gathered at once, if it can be helped
  bool prefetch = true;
  /// True if a parameter may be cut; false only without `on_demand`. See PlanOptions.
  bool cut = true;
  /// Throws an error of the library to who called an operator; by default as it is.
  std::function<void(std::exception_ptr error)> raise;
};

/// A run of the masters of this rank, in one of its arenas, that belongs to one parameter.
struct OwnedPiece {
  int parameter = 0;
  std::int64_t start = 0;  ///< first element within the parameter
  std::int64_t elements = 0;
  int arena = 0;
  std::int64_t offset = 0;  ///< within the arena
};

/// Bytes on this rank, now and at most.
struct StoreUse {
  std::int64_t shards = 0;     ///< parameters owned here: masters, and their 16-bit copies
  std::int64_t gradients = 0;  ///< shards of gradients; none are on their way between steps
  std::int64_t live = 0;       ///< gathered parameters
  std::int64_t peak_live = 0;
  std::int64_t spare = 0;       ///< memory kept for the next units to be gathered
  std::int64_t persistent = 0;  ///< gathered for good
};

/// All ranks of the groups make the same calls in the same order, and so do replicas. Calls may
/// come from any thread, one at a time; they block at most for the groups' timeout.
class ParameterStore {
 public:
  ParameterStore(StoreOptions options, std::vector<StoredParameter> parameters,
                 std::vector<std::string> block_names);
  ~ParameterStore();
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  [[nodiscard]] const std::vector<UnitLayout>& layouts() const;
  /// The unit of each parameter.
  [[nodiscard]] std::vector<int> unit_of_parameters() const;

  // --- Use ---

  /// A forward begins outside of any other; `training` passes and others have orders of their own.
  void begin_pass(bool training);
  /// From now on all ranks run alike, as in a step's function: reading values gathers them. Else
  /// they do in forwards and backwards alone, and reading is an error.
  void set_alike(bool alike);
  /// A step begins. If `due`, gradients are to be averaged over replicas after `backwards` more
  /// backwards: the exchange begins beside the last of them.
  void begin_step(bool due, int backwards);
  /// A module is called whose parameters are in `units`: they are unsharded until leave().
  void enter(const std::vector<int>& units);
  /// The module's call is over. In the backward, units come back before the gradients of
  /// `outputs`, if they are not there yet.
  void leave(const std::vector<at::Tensor>& outputs, bool failed);
  /// A backward is over: reduces what is left of it.
  void end_backward();
  /// A step is over; with `due`, shards of gradients become the mean over all replicas.
  void finish_step(bool due);
  /// True if averaged gradients wait for the optimizer.
  [[nodiscard]] bool has_gradients() const;
  /// True if gradients wait for the end of their accumulation.
  [[nodiscard]] bool is_accumulating() const;
  /// Trained parameters to which no gradient of this rank came since zero_gradients().
  [[nodiscard]] std::vector<int> unreached() const;

  // --- Masters ---

  /// Flat masters of this rank, one for each type, and the shards of gradients beside them.
  [[nodiscard]] std::vector<at::Tensor> masters() const;
  /// Zeros where nothing was accumulated.
  [[nodiscard]] std::vector<at::Tensor> gradients();
  /// Pieces of parameters that the masters hold.
  [[nodiscard]] std::vector<OwnedPiece> pieces() const;
  /// Name of the first parameter with a gradient here that is not finite; empty for none.
  [[nodiscard]] std::string not_finite();
  void zero_gradients();
  /// Zeroes those of some parameters only; has_gradients() and is_accumulating() stay as they are.
  void zero_gradients_of(const std::vector<int>& parameters);
  /// The masters were changed: modules see them from now on. Collective over the shard group.
  void publish();
  /// True if nobody has changed the masters since they were published.
  [[nodiscard]] bool is_published() const;
  /// Accepts what was written so far into parameters that are gathered for good: it is no mistake.
  /// It is lost at the next publish() unless assign() takes it.
  void accept_writes();
  /// Whole values of one unit's parameters, in order, on the CPU: of `arenas`, which are laid out
  /// as masters() are and have a type on all ranks, but of frozen parameters, which are in no
  /// arena, the masters. Collective.
  std::vector<at::Tensor> whole_unit(int unit, const std::vector<at::Tensor>& arenas);
  /// Type of the master of a parameter, alike on all ranks.
  [[nodiscard]] at::ScalarType master_type(int parameter) const;
  /// This rank's even share (see even_share) of the master of a parameter.
  [[nodiscard]] EvenShare even_share_of(int parameter) const;
  /// The elements of the shares of `parameters`, zeros behind them, into `targets` [length], of any
  /// type and device. Collective, with the same parameters: each unit is whole on every rank for a
  /// moment.
  void copy_even_shares(const std::vector<int>& parameters, const std::vector<at::Tensor>& targets);
  /// This rank's part of the masters becomes that of `value`, until publish() only there.
  void assign(int parameter, const at::Tensor& value);

  [[nodiscard]] StoreUse use() const;
  [[nodiscard]] ShardExchange::Traffic traffic() const;
  /// Prefetching in the last pass.
  [[nodiscard]] Prefetched prefetched() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  ///< hooks of the parameters hold it weakly
  bool has_gradients_ = false;
  bool is_accumulating_ = false;
};

}  // namespace smp::sharding
