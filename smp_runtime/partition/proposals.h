// SPDX-License-Identifier: Apache-2.0
// The proposals that `assign_auto` chooses from.
#pragma once

#include <string>
#include <vector>

#include "smp_runtime/partition/auto_partitioner.h"
#include "smp_runtime/partition/cost_model.h"
#include "smp_runtime/partition/units.h"

namespace smp::partition {

/// The proposals themselves, not yet measured, without repetitions of an assignment.
struct Proposals {
  std::vector<Proposal> list;
  Cost contiguous_load = 0;
  bool fits = true;  ///< whether any contiguous partition fits options.capacity_bytes
};

Proposals make_proposals(const ModuleTree& tree, const Units& units, int partitions,
                         const AutoOptions& options);

/// The heaviest load that may be chosen.
Cost load_limit(Cost contiguous_load);

/// No partition onto `devices` has a heaviest device lighter than this.
Cost load_lower_bound(const std::vector<Cost>& loads, int devices);

/// Local search from `device_of` (by unit): moves a unit that stands next to one of another device,
/// or swaps two units, as long as the heaviest device gets lighter. Leaves no device empty that was
/// not. Stops at the lower bound, at a local optimum, or after a fixed number of trials.
std::vector<int> refine(const std::vector<Cost>& loads, std::vector<int> device_of, int devices);

}  // namespace smp::partition
