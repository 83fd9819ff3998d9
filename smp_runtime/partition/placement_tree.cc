// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/placement_tree.h"

#include <algorithm>

#include "smp_runtime/partition/shared_parameters.h"

namespace smp::partition {
namespace {

int nearest_called_ancestor(const ModuleTree& tree, int node) {
  do {
    node = tree.parent(node);
  } while (node != 0 && !tree.module(node).called);
  return node;
}

}  // namespace

std::vector<Placement> make_placement_tree(const ModuleTree& tree, const std::vector<Cost>& own) {
  const std::vector<int> leaders = colocation_leaders(tree);
  const std::vector<int> preorder = tree.preorder();
  std::vector<Placement> placements(tree.size());
  std::vector<bool> holds_parameters(tree.size(), false);
  for (int node = 0; node < tree.size(); ++node) {
    placements[node].own = own[node];
    holds_parameters[node] = !tree.module(node).parameters.empty();
  }

  // A node hangs on its leader or on an ancestor. Both precede it in execution order, so going
  // backwards visits each node after all that hangs on it.
  for (auto it = preorder.rbegin(); it != preorder.rend(); ++it) {
    const int node = *it;
    Placement& here = placements[node];
    std::reverse(here.children.begin(), here.children.end());
    std::reverse(here.riders.begin(), here.riders.end());
    here.subtree = here.own;
    int leaves = 0;
    for (const int child : here.children) {
      here.subtree += placements[child].subtree;
      leaves += placements[child].leaves;
    }
    here.leaves = std::max(leaves, 1);
    if (node == 0) continue;

    const bool follows = leaders[node] != node;
    const int host = follows ? leaders[node] : nearest_called_ancestor(tree, node);
    if (!follows && tree.module(node).called && holds_parameters[node]) {
      placements[host].children.push_back(node);
    } else {
      placements[host].riders.push_back(node);
      placements[host].own += here.subtree;
    }
    if (holds_parameters[node]) holds_parameters[host] = true;
  }
  return placements;
}

}  // namespace smp::partition
