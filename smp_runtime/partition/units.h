// SPDX-License-Identifier: Apache-2.0
// A model as a row of units in execution order: what can stand on a device of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "smp_runtime/partition/cost_model.h"
#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// A module with what hangs on it: followers over shared parameters, subtrees without parameters,
/// and the modules above whose first unit it is, unless they hold parameters and are units.
struct Unit {
  int node = 0;
  Cost load = 0;                 ///< as `own_costs` mixes it
  std::int64_t time_ns = 0;      ///< as `own_times` has it
  std::int64_t state_bytes = 0;  ///< parameters, gradients, optimizer state, what is recomputed
  std::int64_t kept_bytes = 0;   ///< activations of one microbatch
};

struct Units {
  std::vector<Unit> list;
  std::vector<int> of_node;  ///< the unit that decides where a node of the module tree runs

  [[nodiscard]] int size() const { return static_cast<int>(list.size()); }
};

Units make_units(const ModuleTree& tree, double memory_weight, const MemoryModel& memory);

/// Bytes that cross the cut before each position of `order` (a permutation of the units), there and
/// back: of every tensor that is made on one side and read on the other. Indexed 0 to units.size();
/// nothing crosses at either end.
std::vector<std::int64_t> cut_bytes(const ModuleTree& tree, const Units& units,
                                    std::span<const int> order);

/// A topological order of the units by what they read of each other: always the ready unit next
/// after which the fewest bytes are live, the earliest in execution order among equals. What flows
/// against the execution order (to a head tied to the embedding) does not constrain it.
std::vector<int> narrow_order(const ModuleTree& tree, const Units& units);

}  // namespace smp::partition
