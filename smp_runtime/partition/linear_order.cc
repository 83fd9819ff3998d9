// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/linear_order.h"

#include <algorithm>
#include <set>

namespace smp::partition {
namespace {

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

std::vector<int> narrow_order(const ModuleTree& tree, const Units& units) {
  return Order(tree, units).decide();
}

}  // namespace smp::partition
