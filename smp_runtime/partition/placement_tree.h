// SPDX-License-Identifier: Apache-2.0
// The module tree reduced to what has to be decided: modules that follow another hang on it, and
// containers that are never run are gone, or stand for what they hold.
#pragma once

#include <vector>

#include "smp_runtime/partition/cost_model.h"
#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// One node of the module tree, under the same number.
struct Placement {
  /// Modules below it that can go to a device of their own, in execution order. Children of a
  /// dissolved container stand where the container stood.
  std::vector<int> children;
  /// Modules that run on its device, each with all that hangs below it: followers over shared
  /// parameters, subtrees without parameters, modules that are never run.
  std::vector<int> riders;
  Cost own = 0;      ///< itself and its riders
  Cost subtree = 0;  ///< own and all children
  int leaves = 1;    ///< devices that its subtree can fill: childless nodes in it
};

/// Treatment of containers that are never run and own no parameters.
enum class Containers {
  kDissolve,  ///< it rides along; its children stand where it stood
  kKeep,      ///< it stays as one unit among its siblings, which is cut in turn
};

/// Indexed by node. Every node but the root is in exactly one list of one other node.
std::vector<Placement> make_placement_tree(const ModuleTree& tree, const std::vector<Cost>& own,
                                           Containers containers = Containers::kDissolve);

/// The module that runs what is below `node`: the nearest one above it that is ever run.
int nearest_called_ancestor(const ModuleTree& tree, int node);

/// For each node the one that decides where it runs: itself, or the module that comes first in
/// execution order among those it is tied to. Two modules are tied
///   - when both own one parameter directly (an embedding and the head that reuses its weight);
///   - when their subtrees hold the same set of parameters (two towers over one set of weights),
///     so that the copies are split alike; a module is never tied to its own ancestor this way.
/// Ties are transitive. The leader of a node precedes it in execution order.
std::vector<int> colocation_leaders(const ModuleTree& tree);

}  // namespace smp::partition
