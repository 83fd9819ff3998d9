// SPDX-License-Identifier: Apache-2.0
// Time against memory: the contiguous partitions in which neither can be had for less.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/partition/interval_partitioner.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::partition {

/// The two resources of a row of units, in its order.
struct TwoResources {
  std::vector<std::int64_t> time_ns;
  std::vector<std::int64_t> cut_ns;  ///< as IntervalProblem::cuts
  std::vector<std::int64_t> state_bytes;
  std::vector<std::int64_t> kept_bytes;  ///< activations of one microbatch
};

struct ParetoPoint {
  Intervals intervals;
  std::int64_t worst_time_ns = 0;
  std::int64_t worst_bytes = 0;  ///< of one stage: state and the activations that it holds
};

/// From the fastest to the smallest: for caps evenly spaced between the memory of the fastest and
/// the least possible one, the fastest partition within each, and of those as fast the smallest.
/// At most `points`, without those that another one beats in both. `capacity_bytes` > 0 leaves out
/// what does not fit; nothing may be left.
std::vector<ParetoPoint> pareto_front(const TwoResources& units, int count,
                                      const schedule::ScheduleShape& shape,
                                      std::int64_t capacity_bytes, int points);

/// The point with the least memory_weight × memory + (1 - memory_weight) × time, each as a share of
/// the whole model's. The first of equals. `front` is not empty.
const ParetoPoint& choose_point(const std::vector<ParetoPoint>& front, const TwoResources& units,
                                double memory_weight);

/// The memory limit of each stage for `pareto_front` and others.
Limit memory_limit(const TwoResources& units, int count, const schedule::ScheduleShape& shape,
                   std::int64_t most);

}  // namespace smp::partition
