// SPDX-License-Identifier: Apache-2.0
// Modules that must run on one device because they share parameters.
#pragma once

#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// For each node the one that decides where it runs: itself, or the module that comes first in
/// execution order among those it is tied to. Two modules are tied
///   - when both own one parameter directly (an embedding and the head that reuses its weight);
///   - when their subtrees hold the same set of parameters (two towers over one set of weights),
///     so that the copies are split alike; a module is never tied to its own ancestor this way.
/// Ties are transitive. The leader of a node precedes it in execution order.
std::vector<int> colocation_leaders(const ModuleTree& tree);

}  // namespace smp::partition
