// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/units.h"

#include <algorithm>

#include "smp_runtime/partition/placement_tree.h"

namespace smp::partition {
namespace {

// For each node the one on whose device it always is: itself, or the host that it rides on.
std::vector<int> hosts_of(const std::vector<Placement>& placements) {
  std::vector<int> host(placements.size(), 0);
  std::vector<int> open{0};
  while (!open.empty()) {
    const int node = open.back();
    open.pop_back();
    // All that hangs on a rider goes with it.
    const bool rides = host[node] != node;
    for (const int rider : placements[node].riders) host[rider] = host[node];
    for (const int child : placements[node].children) host[child] = rides ? host[node] : child;
    open.insert(open.end(), placements[node].riders.begin(), placements[node].riders.end());
    open.insert(open.end(), placements[node].children.begin(), placements[node].children.end());
  }
  return host;
}

}  // namespace

Units make_units(const ModuleTree& tree, double memory_weight, const MemoryModel& memory) {
  const std::vector<Cost> costs = own_costs(tree, memory_weight, memory);
  const std::vector<Placement> placements = make_placement_tree(tree, costs);
  const std::vector<int> host = hosts_of(placements);
  const std::vector<std::int64_t> parameters = own_parameter_bytes(tree);
  const std::vector<std::int64_t> times = own_times(tree);

  std::vector<bool> holds_parameters(tree.size(), false);
  for (int node = 0; node < tree.size(); ++node) {
    if (parameters[node] > 0) holds_parameters[host[node]] = true;
  }

  Units units;
  units.of_node.assign(tree.size(), 0);
  for (const int node : tree.preorder()) {
    if (host[node] != node) continue;
    units.of_node[node] = units.size();  // or what stands there next
    if (placements[node].children.empty() || holds_parameters[node]) {
      units.list.push_back({.node = node});
    }
  }
  for (int node = 0; node < tree.size(); ++node) {
    units.of_node[node] = units.of_node[host[node]];
    Unit& unit = units.list[units.of_node[node]];
    unit.load += costs[node];
    unit.time_ns += times[node];
    unit.state_bytes += parameters[node] * memory.state_factor;
    unit.kept_bytes += tree.module(node).activation_bytes;
  }
  return units;
}

std::vector<std::int64_t> cut_bytes(const ModuleTree& tree, const Units& units,
                                    std::span<const int> order) {
  std::vector<int> position(units.size());
  for (int i = 0; i < units.size(); ++i) position[order[i]] = i;
  std::vector<std::int64_t> bytes(units.size() + 1, 0);
  for (const Tensor& tensor : tree.tensors()) {
    int first = position[units.of_node[tensor.producer]];
    int last = first;
    for (const int node : tensor.consumers) {
      first = std::min(first, position[units.of_node[node]]);
      last = std::max(last, position[units.of_node[node]]);
    }
    if (first == last) continue;
    bytes[first + 1] += 2 * tensor.bytes;  // there, and its gradient back
    bytes[last + 1] -= 2 * tensor.bytes;
  }
  for (int i = 1; i <= units.size(); ++i) bytes[i] += bytes[i - 1];
  return bytes;
}

}  // namespace smp::partition
