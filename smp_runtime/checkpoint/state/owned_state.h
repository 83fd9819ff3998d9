// SPDX-License-Identifier: Apache-2.0
// Sharded or 16-bit state of one rank: as an object, in the form that SavedState reads as a part,
// and from a SavedState, whatever layout that has.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <ATen/core/ivalue.h>

#include "smp_runtime/checkpoint/state/saved_state.h"
#include "smp_runtime/sharding/master_parameters.h"
#include "smp_runtime/sharding/parameter_store.h"

namespace smp::checkpoint {

/// An optimizer over masters.
struct OwnedOptimizer {
  const sharding::MasterParameters* masters = nullptr;
  std::vector<c10::IValue> groups;        ///< dictionaries: settings, and names of parameters
  std::vector<std::vector<int>> members;  ///< parameters of each group, by number, in order
  /// Values that the optimizer keeps for a run: tensors of its shape, and others.
  std::function<std::map<std::string, c10::IValue>(const sharding::MasterRun& run)> state_of;
};

struct OwnedState {
  sharding::ParameterStore* store = nullptr;
  int sharers = 1;                 ///< ranks that share this state
  bool shared = false;             ///< true where others hold what this rank does not
  int index = 0;                   ///< of this rank among them
  std::vector<std::string> names;  ///< of parameters, by number in the store
  std::vector<std::vector<std::int64_t>> shapes;
  std::vector<bool> trained;
  std::vector<OwnedOptimizer> optimizers;
};

/// The part as state dicts have it: masters as they lie on this rank. Shares their memory.
c10::IValue part_of_rank(const OwnedState& owned);

/// The part as files have it: of each group even shares of the masters, one flat tensor on the CPU,
/// as published scripts for sharded checkpoints read them. Collective over the shard group.
c10::IValue part_for_file(const OwnedState& owned);

/// Copies what `saved` has of the masters that `store` owns; `names` are those of its parameters,
/// by number. Modules see them from ParameterStore::publish() on. Throws ConfigError for elements
/// that no file has.
void restore_masters(const SavedState& saved, sharding::ParameterStore& store,
                     const std::vector<std::string>& names);

/// State that the optimizer keeps for `run`: tensors of its shape, and others; empty if nothing was
/// saved. Throws as restore_masters().
std::map<std::string, c10::IValue> state_of_run(const SavedState& saved,
                                                const sharding::MasterRun& run,
                                                const std::vector<std::string>& names);

}  // namespace smp::checkpoint
