// SPDX-License-Identifier: Apache-2.0
// An order of a branching model's units in which little crosses each cut.
#pragma once

#include <vector>

#include "smp_runtime/partition/units.h"

namespace smp::partition {

/// A topological order of the units by what they read of each other: always the ready unit next
/// after which the fewest bytes are live, the earliest in execution order among equals. What flows
/// against the execution order (to a head tied to the embedding) does not constrain it.
std::vector<int> narrow_order(const ModuleTree& tree, const Units& units);

}  // namespace smp::partition
