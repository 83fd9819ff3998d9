// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/cost_model.h"

#include <cmath>
#include <numeric>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

__extension__ using Wide = __int128;
using Amounts = std::vector<std::int64_t>;

constexpr std::int64_t kParts = 1'000'000;  // resolution of memory_weight

Cost share(std::int64_t amount, std::int64_t total, std::int64_t parts) {
  if (total == 0) return 0;
  return static_cast<Cost>(Wide{amount} * kWholeModel * parts / total / kParts);
}

std::int64_t sum(const Amounts& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), std::int64_t{0});
}

}  // namespace

Amounts own_parameter_bytes(const ModuleTree& tree) {
  Amounts bytes(tree.size(), 0);
  std::vector<bool> seen(tree.parameters().size(), false);
  for (const int node : tree.preorder()) {
    for (const int id : tree.module(node).parameters) {
      if (!seen[id]) bytes[node] += tree.parameters()[id].bytes;
      seen[id] = true;
    }
  }
  return bytes;
}

std::vector<Cost> own_costs(const ModuleTree& tree, double memory_weight) {
  SMP_CHECK(memory_weight >= 0 && memory_weight <= 1, "memory_weight is {}", memory_weight);
  const Amounts parameters = own_parameter_bytes(tree);
  Amounts memory = parameters;
  Amounts time(tree.size());
  for (int node = 0; node < tree.size(); ++node) {
    memory[node] += tree.module(node).activation_bytes;
    time[node] = tree.module(node).time_ns;
  }
  if (sum(time) == 0) time = parameters;

  const std::int64_t memory_parts = std::llround(memory_weight * kParts);
  const std::int64_t all_memory = sum(memory);
  const std::int64_t all_time = sum(time);
  std::vector<Cost> costs(tree.size());
  for (int node = 0; node < tree.size(); ++node) {
    costs[node] = share(memory[node], all_memory, memory_parts) +
                  share(time[node], all_time, kParts - memory_parts);
  }
  return costs;
}

}  // namespace smp::partition
