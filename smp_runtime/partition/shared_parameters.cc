// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/shared_parameters.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace smp::partition {
namespace {

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
