// SPDX-License-Identifier: Apache-2.0
// Cuts a row of siblings into contiguous segments and shares devices out among them.
#pragma once

#include <span>
#include <vector>

#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {

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
