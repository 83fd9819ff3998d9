// SPDX-License-Identifier: Apache-2.0
// Improves a partition by moving units one by one: devices may then hold several intervals.
#pragma once

#include <vector>

#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {

/// No partition onto `devices` has a heaviest device lighter than this.
Cost load_lower_bound(const std::vector<Cost>& loads, int devices);

/// Local search from `device_of` (by unit): moves a unit that stands next to one of another device,
/// or swaps two units, as long as the heaviest device gets lighter. Leaves no device empty that was
/// not. Stops at the lower bound, at a local optimum, or after a fixed number of trials.
std::vector<int> refine(const std::vector<Cost>& loads, std::vector<int> device_of, int devices);

}  // namespace smp::partition
