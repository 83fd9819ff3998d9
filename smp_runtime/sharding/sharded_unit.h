// SPDX-License-Identifier: Apache-2.0
// A unit of a parameter store with its tensors, and the making of all units of a model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/sharding/shard_exchange.h"
#include "smp_runtime/sharding/torch_free/unit_layout.h"

namespace smp::sharding {

/// The ranks that hold some parameters alike, and how they share their state: in shard groups, of
/// which each has one copy, and with replicas of this rank's shard in the others.
struct ReplicationGroup {
  ShardExchange* exchange = nullptr;
  int index = 0;             ///< of this rank in its shard group
  std::int64_t divisor = 1;  ///< of gradients, once those of the whole group are added up
};

struct StoredParameter {
  at::Tensor tensor;  ///< whole, equal on the whole group; real or complex
  std::string name;
  int block = 0;
  int group = 0;  ///< number of its group in the list of all
};

enum class UnitState { kSharded, kInflight, kUnsharded };

struct ShardedUnit {
  UnitLayout layout;
  std::string name;
  std::vector<StoredParameter> parameters;
  ReplicationGroup group;
  bool trained = false;
  bool always_unsharded = false;
  at::Tensor full;   ///< [padded] in the computing type; has memory only while not sharded
  at::Tensor shown;  ///< alias of `full`, watched, of which parameters are views
  std::vector<at::Tensor> placeholders;  ///< of the parameters while it is sharded
  at::Tensor own;       ///< [shard] in the computing type: what this rank gives to a gather
  at::Tensor master;    ///< [shard] in the master's type; `own` itself where types are equal
  at::Tensor gradient;  ///< [shard] in the master's type; of trained units
  std::size_t arena = 0;
  std::int64_t arena_offset = 0;

  // State of the unit, which UnshardedUnits changes.
  UnitState state = UnitState::kSharded;
  ShardExchange::Pending pending;
  std::vector<std::uint32_t> versions;  ///< of the parameters when they came alive
  int users = 0;                        ///< calls under way that need it
  bool held = false;                    ///< what reads its values now is not over

  // State of the unit's gradient.
  std::vector<std::uint8_t> arrived;  ///< by parameter, in the backward that is running
  std::size_t arrivals = 0;           ///< how many of these are set
  bool fresh = true;                  ///< nothing was added to `gradient` since it was zeroed
  /// By parameter, in a group of one: whether its part of `gradient` has a value; another's is what
  /// was there before.
  std::vector<std::uint8_t> written;
};

/// Masters of one type and of the same group, flat, and their gradients.
struct Arena {
  at::Tensor master;
  at::Tensor gradient;
  ReplicationGroup group;
  std::uint32_t published = 0;  ///< version of the masters that modules see
};

struct UnitOptions {
  std::vector<ReplicationGroup> groups;
  at::ScalarType compute_type = at::ScalarType::Undefined;
  bool on_demand = true;
  std::int64_t persistence_threshold = 0;  ///< [elements]
  std::int64_t bucket = 0;                 ///< [elements]
  bool cut = true;                         ///< see PlanOptions
};

struct ShardedModel {
  std::vector<UnitLayout> layouts;
  std::vector<ShardedUnit> units;
  std::vector<int> unit_of;  ///< by parameter
  std::vector<Arena> arenas;
};

/// Says that the values of parameter `name` of `unit` are not here, and how to have them.
std::string absence_of(const std::string& name, const ShardedUnit& unit);

/// Plans the units and makes the arenas.
ShardedModel make_units(const UnitOptions& options, const std::vector<StoredParameter>& parameters,
                        const std::vector<std::string>& block_names);

/// Makes a unit's tensors and fills them from its parameters, which stay as they are.
void fill_unit(const UnitOptions& options, const std::vector<StoredParameter>& parameters,
               std::vector<Arena>& arenas, ShardedUnit& unit);

}  // namespace smp::sharding
