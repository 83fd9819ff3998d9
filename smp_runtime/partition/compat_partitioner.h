// SPDX-License-Identifier: Apache-2.0
// The published partitioner of SMP: level by level from the root, siblings in contiguous segments,
// devices shared out in proportion.
#pragma once

#include <vector>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/cost_model.h"
#include "smp_runtime/partition/placement_tree.h"

namespace smp::partition {

/// Each module is offered a run of devices and runs on the first of them; its children are cut
/// into segments that share the run. The root is on partition 0. Modules that share parameters end
/// on one device; a module without parameters, or one that is never run, goes with its parent.
/// With at least as many leaves (modules that can stand alone) as partitions none stays empty. The
/// result depends on the arguments only.
Assignment assign_compat(const ModuleTree& tree, int partitions, double memory_weight);

/// The same with other costs, by node; the partition of each node.
std::vector<int> place_level_by_level(const ModuleTree& tree, int partitions,
                                      const std::vector<Cost>& own_costs, Containers containers);

}  // namespace smp::partition
