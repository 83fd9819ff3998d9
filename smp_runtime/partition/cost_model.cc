// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/cost_model.h"

#include <cmath>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

__extension__ using Wide = __int128;
using Amounts = std::vector<std::int64_t>;

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

Amounts forward_times(const ModuleTree& tree) {
  Amounts time(tree.size());
  for (int node = 0; node < tree.size(); ++node) time[node] = tree.module(node).time_ns;
  return sum(time) == 0 ? own_parameter_bytes(tree) : time;
}

Amounts own_times(const ModuleTree& tree) {
  Amounts time = forward_times(tree);
  for (int node = 0; node < tree.size(); ++node) time[node] += tree.module(node).recompute_ns / 3;
  return time;
}

Cost share_of(std::int64_t amount, std::int64_t total, std::int64_t parts) {
  if (total == 0) return 0;
  return static_cast<Cost>(Wide{amount} * kWholeModel * parts / total / kParts);
}

std::int64_t memory_parts(double memory_weight) {
  SMP_CHECK(memory_weight >= 0 && memory_weight <= 1, "memory_weight is {}", memory_weight);
  return std::llround(memory_weight * kParts);
}

std::vector<Cost> own_costs(const ModuleTree& tree, double memory_weight,
                            const MemoryModel& memory_model) {
  const std::int64_t parts = memory_parts(memory_weight);
  Amounts memory = own_parameter_bytes(tree);
  for (int node = 0; node < tree.size(); ++node) {
    memory[node] =
        memory_model.bytes_of(tree.module(node), memory[node], memory_model.kept_activations);
  }
  const Amounts time = own_times(tree);
  const std::int64_t all_memory = sum(memory);
  const std::int64_t all_time = sum(time);
  std::vector<Cost> costs(tree.size());
  for (int node = 0; node < tree.size(); ++node) {
    costs[node] =
        share_of(memory[node], all_memory, parts) + share_of(time[node], all_time, kParts - parts);
  }
  return costs;
}

}  // namespace smp::partition
