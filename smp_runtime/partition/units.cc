// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/units.h"

#include <algorithm>
#include <set>

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

// A tensor between units: made by `producer`, read by units behind it.
struct Flow {
  std::int64_t bytes = 0;
  int producer = 0;
  std::set<int> open;  ///< readers that have not run
};

class Order {
 public:
  Order(const ModuleTree& tree, const Units& units)
      : reads_(units.size()),
        waits_for_(units.size(), 0),
        frees_(units.size(), 0),
        makes_bytes_(units.size(), 0) {
    std::vector<std::set<int>> before(units.size());
    for (const Tensor& tensor : tree.tensors()) {
      Flow flow{.bytes = tensor.bytes, .producer = units.of_node[tensor.producer]};
      for (const int node : tensor.consumers) {
        const int reader = units.of_node[node];
        if (reader > flow.producer) flow.open.insert(reader);
      }
      if (flow.open.empty()) continue;
      const int number = static_cast<int>(flows_.size());
      for (const int reader : flow.open) {
        reads_[reader].push_back(number);
        before[reader].insert(flow.producer);
      }
      makes_bytes_[flow.producer] += flow.bytes;
      if (flow.open.size() == 1) frees_[*flow.open.begin()] += flow.bytes;
      flows_.push_back(std::move(flow));
    }
    followers_.resize(units.size());
    for (int unit = 0; unit < units.size(); ++unit) {
      waits_for_[unit] = static_cast<int>(before[unit].size());
      for (const int earlier : before[unit]) followers_[earlier].push_back(unit);
    }
  }

  std::vector<int> decide() {
    std::vector<int> order;
    std::vector<int> ready;
    for (int unit = 0; unit < static_cast<int>(waits_for_.size()); ++unit) {
      if (waits_for_[unit] == 0) ready.push_back(unit);
    }
    while (!ready.empty()) {
      const auto next = std::min_element(ready.begin(), ready.end(), [this](int a, int b) {
        const std::int64_t grows_a = makes_bytes_[a] - frees_[a];
        const std::int64_t grows_b = makes_bytes_[b] - frees_[b];
        return grows_a != grows_b ? grows_a < grows_b : a < b;
      });
      const int unit = *next;
      ready.erase(next);
      order.push_back(unit);
      run(unit, ready);
    }
    return order;
  }

 private:
  void run(int unit, std::vector<int>& ready) {
    for (const int number : reads_[unit]) {
      Flow& flow = flows_[number];
      flow.open.erase(unit);
      if (flow.open.size() == 1) frees_[*flow.open.begin()] += flow.bytes;
    }
    for (const int follower : followers_[unit]) {
      if (--waits_for_[follower] == 0) ready.push_back(follower);
    }
  }

  std::vector<Flow> flows_;
  std::vector<std::vector<int>> reads_;  ///< flows, by unit
  std::vector<std::vector<int>> followers_;
  std::vector<int> waits_for_;
  std::vector<std::int64_t> frees_;  ///< bytes of which the unit is the last reader
  std::vector<std::int64_t> makes_bytes_;
};

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
    unit.state_bytes += memory.bytes_of(tree.module(node), parameters[node], /*kept=*/0);
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

std::vector<int> narrow_order(const ModuleTree& tree, const Units& units) {
  return Order(tree, units).decide();
}

}  // namespace smp::partition
