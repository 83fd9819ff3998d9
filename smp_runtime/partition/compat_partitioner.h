// SPDX-License-Identifier: Apache-2.0
// The published partitioner of SMP: level by level from the root, siblings in contiguous segments,
// devices shared out in proportion.
#pragma once

#include <span>
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

/// Cuts `costs` into `count` contiguous, non-empty segments so that the costliest is as cheap as
/// possible; `first_extra` is added to the first one. Among equal solutions the cuts, taken from
/// the last one on, lie as far left as possible. Returns the end of each segment.
/// Requires 1 <= count <= costs.size(). O(count × size²).
std::vector<int> minmax_segments(std::span<const Cost> costs, int count, Cost first_extra = 0);

/// Shares `devices` out by highest averages (D'Hondt): each goes to the segment with the largest
/// cost / (its devices + 1), the lowest index among equals. No segment gets more than its cap;
/// devices that nobody can take stay unassigned. Returns the number of devices of each segment.
std::vector<int> dhondt_seats(std::span<const Cost> costs, std::span<const int> caps, int devices);

}  // namespace smp::partition
