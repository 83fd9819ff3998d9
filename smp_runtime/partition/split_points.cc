// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/split_points.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/auto_partitioner.h"
#include "smp_runtime/partition/interval_partitioner.h"
#include "smp_runtime/partition/units.h"

namespace smp::partition {
namespace {

constexpr std::int64_t kImpossible = std::numeric_limits<std::int64_t>::max();

/// First units of all intervals but the first: `count` of them, none heavier than `most`, with the
/// least sum of `bytes` at the cuts.
std::vector<int> cheapest_cuts(const std::vector<Cost>& weights,
                               const std::vector<std::int64_t>& bytes, int count, Cost most) {
  const int size = static_cast<int>(weights.size());
  // By intervals and the end of the last one.
  std::vector<std::vector<std::int64_t>> least(count + 1,
                                               std::vector<std::int64_t>(size + 1, kImpossible));
  std::vector<std::vector<int>> begin(count + 1, std::vector<int>(size + 1, -1));
  least[0][0] = 0;
  for (int interval = 1; interval <= count; ++interval) {
    for (int end = interval; end <= size; ++end) {
      Cost weight = 0;
      for (int first = end - 1; first >= 0; --first) {
        weight += weights[first];
        if (weight > most) break;
        const std::int64_t before = least[interval - 1][first];
        if (before == kImpossible || before + bytes[first] >= least[interval][end]) continue;
        least[interval][end] = before + bytes[first];
        begin[interval][end] = first;
      }
    }
  }
  std::vector<int> cuts;
  for (int interval = count, end = size; interval > 1; --interval) {
    end = begin[interval][end];
    cuts.push_back(end);
  }
  std::ranges::reverse(cuts);
  return cuts;
}

/// The outermost module that is called and has nothing before the unit.
int begins_with(const ModuleTree& tree, const Units& units, int unit) {
  const int last_before = units.list[unit - 1].node;
  int result = units.list[unit].node;
  for (int node = result; node >= 0 && !tree.contains(node, last_before);
       node = tree.parent(node)) {
    if (tree.module(node).called) result = node;
  }
  return result;
}

}  // namespace

std::vector<std::string> split_points(const ModuleTree& tree, int stages) {
  const Units units = make_units(tree, /*memory_weight=*/0, {});
  if (stages < 1 || stages > units.size()) {
    throw ConfigError("a model that has {} modules to place cannot be cut into {} stages",
                      units.size(), stages);
  }
  IntervalProblem problem;
  for (const Unit& unit : units.list) problem.weights.push_back(unit.load);
  const auto best = solve_intervals(problem, stages);
  SMP_CHECK(best, "no cut of {} units into {} stages", units.size(), stages);
  std::vector<int> order(units.list.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::string> names;
  for (const int cut : cheapest_cuts(problem.weights, cut_bytes(tree, units, order), stages,
                                     best->worst * kLoadSlackPercent / 100)) {
    names.push_back(tree.module(begins_with(tree, units, cut)).name);
  }
  return names;
}

}  // namespace smp::partition
