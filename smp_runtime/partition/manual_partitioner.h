// SPDX-License-Identifier: Apache-2.0
// Places modules where their creator asked for.
#pragma once

#include <vector>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/assignment.h"

namespace smp::partition {

/// A module goes to its own pin, else to the nearest pin above it, else to `default_partition`.
/// Throws ConfigError for a pin outside [0, partitions), and when modules that share a parameter
/// end on different partitions.
inline Assignment assign_manual(const ModuleTree& tree, int partitions, int default_partition) {
  std::vector<int> partition_of(tree.size(), default_partition);
  for (int node = 0; node < tree.size(); ++node) {
    if (node > 0) partition_of[node] = partition_of[tree.parent(node)];
    const auto& pin = tree.module(node).pin;
    if (pin) partition_of[node] = *pin;
    if (partition_of[node] < 0 || partition_of[node] >= partitions) {
      throw ConfigError("module {} is put on partition {}; expected 0 to {} with partitions={}",
                        display_name(tree.module(node)), partition_of[node], partitions - 1,
                        partitions);
    }
  }
  Assignment assignment = make_assignment(tree, partition_of, partitions);
  check_fits(assignment, tree, partitions);
  return assignment;
}

}  // namespace smp::partition
