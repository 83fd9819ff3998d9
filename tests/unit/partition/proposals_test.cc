// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/proposals.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/partition/interval_partitioner.h"

namespace smp::partition {
namespace {

std::vector<Cost> random_loads(std::uint32_t seed, int size) {
  std::mt19937 random(seed);
  std::vector<Cost> loads;
  for (int i = 0; i < size; ++i) loads.push_back(1 + static_cast<int>(random() % 1000));
  return loads;
}

Cost worst_of(const std::vector<Cost>& loads, const std::vector<int>& device_of, int devices) {
  std::vector<Cost> total(devices, 0);
  for (size_t unit = 0; unit < loads.size(); ++unit) total.at(device_of[unit]) += loads[unit];
  return *std::max_element(total.begin(), total.end());
}

// The best of all assignments; device numbers are interchangeable.
Cost brute_force(const std::vector<Cost>& loads, std::vector<Cost>& total, size_t unit, int used,
                 Cost best) {
  if (unit == loads.size()) return std::min(best, *std::max_element(total.begin(), total.end()));
  const int devices = static_cast<int>(total.size());
  for (int device = 0; device < std::min(used + 1, devices); ++device) {
    if (total[device] + loads[unit] >= best) continue;
    total[device] += loads[unit];
    best = std::min(best, brute_force(loads, total, unit + 1, std::max(used, device + 1), best));
    total[device] -= loads[unit];
  }
  return best;
}

Cost best_of_all(const std::vector<Cost>& loads, int devices) {
  std::vector<Cost> total(devices, 0);
  return brute_force(loads, total, 0, 0, std::numeric_limits<Cost>::max());
}

std::vector<int> contiguous(const std::vector<Cost>& loads, int devices) {
  const auto intervals = solve_intervals({.weights = loads}, devices);
  std::vector<int> device_of(loads.size());
  for (int k = devices - 1; k >= 0; --k) {
    std::fill(device_of.begin(), device_of.begin() + intervals->ends[k], k);
  }
  return device_of;
}

TEST(Refinement, SwapsMakeEvenWhatCutsCannot) {
  const std::vector<Cost> loads{7, 1, 7, 1};

  EXPECT_EQ(worst_of(loads, refine(loads, {0, 0, 0, 1}, 2), 2), 8);
}

TEST(Refinement, ABalancedPartitionStaysAsItIs) {
  const std::vector<int> even{0, 0, 1, 1};

  EXPECT_EQ(refine({3, 3, 3, 3}, even, 2), even);
}

TEST(Refinement, IsCloseToTheBestOfAllAssignments) {
  double sum_contiguous = 0;
  double sum_refined = 0;
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    const std::vector<Cost> loads = random_loads(seed, 10 + static_cast<int>(seed) % 5);
    const int devices = 2 + static_cast<int>(seed) % 3;
    const auto best = static_cast<double>(best_of_all(loads, devices));

    const std::vector<int> start = contiguous(loads, devices);
    const std::vector<int> refined = refine(loads, start, devices);

    const Cost worst = worst_of(loads, refined, devices);
    EXPECT_GE(worst, best_of_all(loads, devices));
    EXPECT_LE(worst, worst_of(loads, start, devices));
    EXPECT_LE(static_cast<double>(worst), 1.15 * best) << "seed " << seed;
    for (int device = 0; device < devices; ++device) {
      EXPECT_THAT(refined, testing::Contains(device));
    }
    sum_contiguous += static_cast<double>(worst_of(loads, start, devices)) / best;
    sum_refined += static_cast<double>(worst) / best;
  }
  EXPECT_LT(sum_refined / 40, 1.03);
  EXPECT_GT(sum_contiguous / 40, 1.05) << "or there was nothing to refine";
}

TEST(LoadLowerBound, IsTheMeanOrTheHeaviestUnit) {
  EXPECT_EQ(load_lower_bound({1, 1, 1, 2}, 2), 3);
  EXPECT_EQ(load_lower_bound({1, 9, 1, 2}, 2), 9);
}

}  // namespace

}  // namespace smp::partition
