// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/placement_tree.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

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

// Union-find whose representative is the member that comes first in execution order.
class Ties {
 public:
  explicit Ties(const std::vector<int>& preorder) : link_(preorder.size()), at_(preorder.size()) {
    std::iota(link_.begin(), link_.end(), 0);
    for (size_t i = 0; i < preorder.size(); ++i) at_[preorder[i]] = static_cast<int>(i);
  }

  int leader(int node) {
    while (link_[node] != node) {
      link_[node] = link_[link_[node]];
      node = link_[node];
    }
    return node;
  }

  void tie(int a, int b) {
    a = leader(a);
    b = leader(b);
    if (at_[b] < at_[a]) std::swap(a, b);
    link_[b] = a;
  }

 private:
  std::vector<int> link_;
  std::vector<int> at_;  ///< node → position in execution order
};

void tie_owners(const ModuleTree& tree, const std::vector<int>& preorder, Ties& ties) {
  std::vector<int> first_owner(tree.parameters().size(), -1);
  for (const int node : preorder) {
    for (const int id : tree.module(node).parameters) {
      if (first_owner[id] < 0) first_owner[id] = node;
      ties.tie(first_owner[id], node);
    }
  }
}

std::vector<std::set<int>> parameters_of_subtrees(const ModuleTree& tree,
                                                  const std::vector<int>& preorder) {
  std::vector<std::set<int>> held(tree.size());
  for (auto node = preorder.rbegin(); node != preorder.rend(); ++node) {
    const auto& own = tree.module(*node).parameters;
    held[*node].insert(own.begin(), own.end());
    for (const int child : tree.children(*node)) {
      held[*node].insert(held[child].begin(), held[child].end());
    }
  }
  return held;
}

void tie_copies(const ModuleTree& tree, const std::vector<int>& preorder, Ties& ties) {
  std::map<std::set<int>, std::vector<int>> holders;
  auto held = parameters_of_subtrees(tree, preorder);
  for (const int node : preorder) {
    if (held[node].empty()) continue;
    std::vector<int>& earlier = holders[std::move(held[node])];
    const auto twin = std::find_if(earlier.begin(), earlier.end(),
                                   [&](int other) { return !tree.contains(other, node); });
    if (twin != earlier.end()) ties.tie(*twin, node);
    earlier.push_back(node);
  }
}

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

std::vector<int> colocation_leaders(const ModuleTree& tree) {
  const std::vector<int> preorder = tree.preorder();
  Ties ties(preorder);
  tie_owners(tree, preorder, ties);
  tie_copies(tree, preorder, ties);
  std::vector<int> leaders(tree.size());
  for (const int node : preorder) leaders[node] = ties.leader(node);
  return leaders;
}

}  // namespace smp::partition
