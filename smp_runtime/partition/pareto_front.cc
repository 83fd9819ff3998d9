// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/pareto_front.h"

#include <algorithm>
#include <limits>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

class Front {
 public:
  Front(const TwoResources& units, int count, const schedule::ScheduleShape& shape)
      : units_(units),
        count_(count),
        problem_{.weights = units.time_ns,
                 .cuts = units.cut_ns,
                 .limits = {memory_limit(units, count, shape, kUnlimited)}} {}

  // The fastest partition within `cap`, as small as that speed allows.
  std::optional<ParetoPoint> at(std::int64_t cap) {
    problem_.limits[0].most = cap;
    const auto fastest = solve_intervals(problem_, count_);
    if (!fastest) return std::nullopt;
    ParetoPoint point = smallest_within(fastest->worst, worst_bytes(fastest->ends));
    point.worst_time_ns = point.intervals.worst;
    return point;
  }

  // The least cap that any partition fits in, as a partition.
  ParetoPoint smallest() {
    const Cost any_time =
        sum(units_.time_ns) +
        (units_.cut_ns.empty() ? 0
                               : 2 * *std::max_element(units_.cut_ns.begin(), units_.cut_ns.end()));
    problem_.limits[0].most = kUnlimited;
    const auto start = intervals_within(problem_, count_, any_time);
    SMP_CHECK(start.has_value(), "{} units for {} stages", units_.time_ns.size(), count_);
    const ParetoPoint point = smallest_within(any_time, worst_bytes(start->ends));
    return at(point.worst_bytes).value();
  }

 private:
  ParetoPoint smallest_within(Cost time, std::int64_t high) {
    std::int64_t low = 0;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      problem_.limits[0].most = middle;
      const auto found = intervals_within(problem_, count_, time);
      if (found) {
        high = worst_bytes(found->ends);
      } else {
        low = middle + 1;
      }
    }
    problem_.limits[0].most = high;
    const auto found = intervals_within(problem_, count_, time);
    SMP_CHECK(found.has_value(), "no partition within {} bytes", high);
    return {.intervals = *found,
            .worst_time_ns = found->worst,
            .worst_bytes = worst_bytes(found->ends)};
  }

  [[nodiscard]] std::int64_t worst_bytes(const std::vector<int>& ends) const {
    std::int64_t worst = 0;
    for (int k = 0, begin = 0; k < count_; begin = ends[k++]) {
      std::int64_t bytes = 0;
      for (int i = begin; i < ends[k]; ++i) {
        bytes += units_.state_bytes[i] + units_.kept_bytes[i] * problem_.limits[0].times[k];
      }
      worst = std::max(worst, bytes);
    }
    return worst;
  }

  const TwoResources& units_;
  int count_;
  IntervalProblem problem_;
};

}  // namespace

Limit memory_limit(const TwoResources& units, int count, const schedule::ScheduleShape& shape,
                   std::int64_t most) {
  Limit limit{.fixed = units.state_bytes, .kept = units.kept_bytes, .times = {}, .most = most};
  for (int stage = 0; stage < count; ++stage)
    limit.times.push_back(shape.in_flight_at(stage, count));
  return limit;
}

std::vector<ParetoPoint> pareto_front(const TwoResources& units, int count,
                                      const schedule::ScheduleShape& shape,
                                      std::int64_t capacity_bytes, int points) {
  SMP_CHECK(points >= 2, "{} points", points);
  Front search(units, count, shape);
  std::vector<ParetoPoint> front;
  const auto fastest = search.at(capacity_bytes > 0 ? capacity_bytes : kUnlimited);
  if (!fastest) return front;
  front.push_back(*fastest);
  const ParetoPoint smallest = search.smallest();
  const std::int64_t range = fastest->worst_bytes - smallest.worst_bytes;
  for (int i = points - 2; i >= 0 && range > 0; --i) {
    const auto point =
        i == 0 ? smallest : search.at(smallest.worst_bytes + range / (points - 1) * i);
    if (point && point->worst_bytes < front.back().worst_bytes) front.push_back(*point);
  }
  return front;
}

const ParetoPoint& choose_point(const std::vector<ParetoPoint>& front, const TwoResources& units,
                                double memory_weight) {
  SMP_CHECK(!front.empty(), "no partition to choose from");
  const std::int64_t parts = memory_parts(memory_weight);
  const std::int64_t time = sum(units.time_ns);
  const std::int64_t bytes = sum(units.state_bytes) + sum(units.kept_bytes);
  const auto price = [&](const ParetoPoint& point) {
    return share_of(point.worst_bytes, bytes, parts) +
           share_of(point.worst_time_ns, time, kParts - parts);
  };
  return *std::min_element(front.begin(), front.end(),
                           [&](const auto& a, const auto& b) { return price(a) < price(b); });
}

}  // namespace smp::partition
