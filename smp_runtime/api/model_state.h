// SPDX-License-Identifier: Apache-2.0
// What of a model's state the library keeps: masters and shards of this rank's units.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "smp/unit.h"

#include "smp_runtime/session/session.h"
#include "smp_runtime/sharding/shard_groups.h"

namespace smp::api {

/// State of the units on this rank. One thread at a time.
class ModelState {
 public:
  /// `units` by their number in the model: those of this rank's partition. From now on their
  /// parameters are the store's, and floating buffers of the computing type. Collective over the
  /// data-parallel ranks, which have the same values.
  ModelState(session::Session& session, const sharding::ShardPlan& plan,
             const std::map<std::size_t, const Unit*>& units);

  [[nodiscard]] sharding::ParameterStore& store() { return *store_; }
  [[nodiscard]] const sharding::ShardPlan& plan() const { return plan_; }
  [[nodiscard]] const sharding::ShardGroups& groups() const { return groups_.back(); }
  /// All parameters, by their number in the store.
  [[nodiscard]] const std::vector<sharding::StoredParameter>& parameters() const {
    return parameters_;
  }
  /// The store's number of a parameter; -1 for another tensor.
  [[nodiscard]] int number_of(const at::Tensor& parameter) const;

  /// Values of all parameters, by number, from masters, on the CPU; with `frozen_only` those alone
  /// that are not trained, the others undefined. Collective over the shard group.
  [[nodiscard]] std::vector<at::Tensor> whole_values(bool frozen_only = false) const;

  /// Returns what `call` of a unit, by its number in the model, does; its parameters are gathered
  /// for it and for its backward.
  Tensors run(std::size_t unit, const std::function<Tensors()>& call);

 private:
  const sharding::ShardPlan plan_;
  std::vector<sharding::ShardGroups> groups_;
  std::vector<sharding::StoredParameter> parameters_;
  std::map<const void*, int> number_of_;
  std::unique_ptr<sharding::ParameterStore> store_;
  std::map<std::size_t, std::vector<int>> gathered_;  ///< units of the store, by the model's
};

}  // namespace smp::api
