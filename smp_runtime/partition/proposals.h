// SPDX-License-Identifier: Apache-2.0
// The proposals that `assign_auto` chooses from.
#pragma once

#include <string>
#include <vector>

#include "smp_runtime/partition/auto_partitioner.h"
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

}  // namespace smp::partition
