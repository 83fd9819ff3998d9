// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/placement_tree.h"

#include <algorithm>

#include "smp_runtime/partition/shared_parameters.h"

namespace smp::partition {
namespace {

class Kinds {
 public:
  Kinds(const ModuleTree& tree, Containers containers) : tree_(tree), containers_(containers) {}

  /// True if the kind of module lets it go to a device of its own.
  [[nodiscard]] bool stands(int node) const {
    const Module& module = tree_.module(node);
    const bool container = module.parameters.empty() && !tree_.children(node).empty();
    return module.called || (containers_ == Containers::kKeep && container);
  }

  [[nodiscard]] int nearest_standing_ancestor(int node) const {
    do {
      node = tree_.parent(node);
    } while (node != 0 && !stands(node));
    return node;
  }

 private:
  const ModuleTree& tree_;
  Containers containers_;
};

}  // namespace

int nearest_called_ancestor(const ModuleTree& tree, int node) {
  return Kinds(tree, Containers::kDissolve).nearest_standing_ancestor(node);
}

std::vector<Placement> make_placement_tree(const ModuleTree& tree, const std::vector<Cost>& own,
                                           Containers containers) {
  const Kinds kinds(tree, containers);
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
    const bool stands = !follows && kinds.stands(node) && holds_parameters[node];
    // A rider belongs to the module that runs it: never to a container that was kept.
    const int host = follows  ? leaders[node]
                     : stands ? kinds.nearest_standing_ancestor(node)
                              : nearest_called_ancestor(tree, node);
    if (stands) {
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
