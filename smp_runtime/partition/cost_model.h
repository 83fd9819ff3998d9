// SPDX-License-Identifier: Apache-2.0
// What a module costs a device, as one integer.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// A share of the whole model, in units of 2^-40. Integers, so that every rank and every platform
/// decides alike.
using Cost = std::int64_t;
inline constexpr Cost kWholeModel = Cost{1} << 40;

/// Own cost of each node: memory_weight × its share of the model's bytes (parameters, each counted
/// once at its first owner in execution order, and activations) plus the rest × its share of the
/// forward time. A tree without times takes parameter bytes in their place: each weight works once
/// per sample. The sum over all nodes is at most kWholeModel, short of it by rounding only.
/// `memory_weight` lies in [0, 1].
std::vector<Cost> own_costs(const ModuleTree& tree, double memory_weight);

/// Parameter bytes of each node, shared ones counted once at their first owner.
std::vector<std::int64_t> own_parameter_bytes(const ModuleTree& tree);

}  // namespace smp::partition
