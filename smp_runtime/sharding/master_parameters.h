// SPDX-License-Identifier: Apache-2.0
// Parameters of optimizers over sharded or 16-bit state: runs of masters that this rank owns.
//
// An optimizer is made from the model's parameters; its groups get the runs instead. A run is as
// long as consecutive elements belong to one group: with one group it is all that the rank owns.
// Where no parameter is cut each is a run of its own shape, so that optimizers which look at whole
// tensors work, too.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/session/session.h"
#include "smp_runtime/sharding/parameter_store.h"

namespace smp::sharding {

/// A stretch of one arena, and the parameter that the optimizer steps for it.
struct MasterRun {
  int arena = 0;
  std::int64_t offset = 0;    ///< within the arena
  std::int64_t elements = 0;  ///< padding between pieces included
  int group = 0;              ///< of the optimizer
  std::vector<OwnedPiece> pieces;
  at::Tensor parameter;  ///< leaf over the master: [elements], or of the whole parameter's shape

  /// Slice of a tensor of the run's elements that belongs to `piece`. Shares its memory.
  [[nodiscard]] at::Tensor slice_of(const OwnedPiece& piece, const at::Tensor& tensor) const;
};

/// A parameter of the store, by its number there.
struct MasterOrigin {
  std::vector<std::int64_t> shape;
  int group = -1;        ///< of the optimizer; -1 where that does not have it
  bool is_whole = true;  ///< its state is on one rank, all of it
  bool counts = true;    ///< what this rank owns of it counts in sums over a copy of the model
};

struct MasterOptions {
  std::vector<MasterOrigin> origins;
  int groups = 0;                   ///< of the optimizer
  bool one_parameter_each = false;  ///< no run holds pieces of two parameters
  session::GroupPtr control;        ///< of the shard group, on the CPU; null where it is alone
  /// Makes the leaf of a run from a view of the master; empty: detached, with gradient.
  std::function<at::Tensor(const at::Tensor&)> make_leaf;
};

/// One optimizer's runs over `store`, which, as `session`, must outlive this. One thread at a time.
class MasterParameters {
 public:
  MasterParameters(session::Session& session, ParameterStore& store, MasterOptions options);

  /// Each stays where it is in memory.
  [[nodiscard]] const std::deque<MasterRun>& runs() const { return runs_; }
  /// Parameters that the optimizer had not so far are in its `group` from now on. Their runs come
  /// behind those that are there, which stay as they are.
  void add(const std::vector<int>& parameters, int group);
  /// The masters of each group of the optimizer, flat; without a copy where a group is one run.
  [[nodiscard]] std::vector<at::Tensor> flat_groups() const;

  /// The runs' parameters get the store's gradients, or none.
  void show_gradients(bool visible);
  /// Takes over the gradients that a script has set on the runs, zeros where a run has none: they
  /// are the store's from now on. Does nothing while the runs show none.
  void take_gradients();
  /// The store's gradients of these parameters are zero, and the runs show none.
  void clear_gradients();
  /// As norm_of_gradients() of this alone.
  double norm(double norm_type);
  /// Norms by the parameters' numbers, of `powers` [parameters] on the CPU in 64 bits: what this
  /// rank's pieces add to them, or the largest elements for the infinite norm. Collective over the
  /// shard group.
  at::Tensor norms_by_number(at::Tensor powers, double norm_type);

 private:
  friend double norm_of_gradients(std::span<MasterParameters* const> all, double norm_type);

  void cut(const std::vector<bool>& wanted);
  void make_leaves(std::size_t first);
  [[nodiscard]] std::vector<at::Tensor> counted_gradients() const;
  [[nodiscard]] std::vector<session::GroupPtr> copy_groups();

  session::Session& session_;
  ParameterStore& store_;
  MasterOptions options_;
  std::deque<MasterRun> runs_;
  bool shown_ = false;  ///< of gradients
};

/// Norm of the gradients that the runs of `all`, at least one, over one store, show: each element
/// of the model counted once; not finite if one is not. `norm_type` above 0; infinite for the
/// largest element. Collective over a copy of the model.
double norm_of_gradients(std::span<MasterParameters* const> all, double norm_type);

}  // namespace smp::sharding
