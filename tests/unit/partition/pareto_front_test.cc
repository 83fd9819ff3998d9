// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/pareto_front.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::partition {
namespace {

const schedule::ScheduleShape kShape{.microbatches = 8, .active_microbatches = 4};

TwoResources random_units(std::uint32_t seed, int size) {
  std::mt19937 random(seed);
  TwoResources units;
  for (int i = 0; i < size; ++i) {
    units.time_ns.push_back(1 + static_cast<int>(random() % 100));
    units.state_bytes.push_back(1 + static_cast<int>(random() % 100));
    units.kept_bytes.push_back(static_cast<int>(random() % 20));
  }
  return units;
}

std::int64_t fullest(const TwoResources& units, const std::vector<int>& ends) {
  std::int64_t worst = 0;
  const int count = static_cast<int>(ends.size());
  for (int k = 0, begin = 0; k < count; begin = ends[k++]) {
    std::int64_t bytes = 0;
    for (int i = begin; i < ends[k]; ++i) {
      bytes += units.state_bytes[i] + kShape.in_flight_at(k, count) * units.kept_bytes[i];
    }
    worst = std::max(worst, bytes);
  }
  return worst;
}

// All ways to cut into three.
std::vector<std::pair<std::int64_t, std::int64_t>> all_outcomes(const TwoResources& units) {
  std::vector<std::pair<std::int64_t, std::int64_t>> outcomes;
  const int size = static_cast<int>(units.time_ns.size());
  for (int a = 1; a < size - 1; ++a) {
    for (int b = a + 1; b < size; ++b) {
      std::int64_t time[3] = {};
      for (int i = 0; i < size; ++i) time[(i >= a) + (i >= b)] += units.time_ns[i];
      outcomes.emplace_back(*std::max_element(time, time + 3), fullest(units, {a, b, size}));
    }
  }
  return outcomes;
}

TEST(ParetoFront, LateStagesKeepFewerActivations) {
  EXPECT_EQ(kShape.in_flight_at(0, 4), 4) << "bounded by active_microbatches";
  EXPECT_EQ(kShape.in_flight_at(3, 4), 3);
  EXPECT_EQ((schedule::ScheduleShape{.microbatches = 8, .schedule = schedule::Schedule::kSimple}
                 .in_flight_at(3, 4)),
            8);
}

TEST(ParetoFront, EveryPointIsBeatenInBothByNothing) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const TwoResources units = random_units(seed, 12);

    const auto front = pareto_front(units, 3, kShape, 0, 12);

    ASSERT_FALSE(front.empty());
    const auto outcomes = all_outcomes(units);
    EXPECT_EQ(front.front().worst_time_ns,
              std::min_element(outcomes.begin(), outcomes.end())->first);
    std::int64_t least = outcomes[0].second;
    for (const auto& [time, bytes] : outcomes) least = std::min(least, bytes);
    EXPECT_EQ(front.back().worst_bytes, least);
    for (const ParetoPoint& point : front) {
      EXPECT_EQ(fullest(units, point.intervals.ends), point.worst_bytes);
      for (const auto& [time, bytes] : outcomes) {
        EXPECT_FALSE(time <= point.worst_time_ns && bytes < point.worst_bytes) << "seed " << seed;
        EXPECT_FALSE(time < point.worst_time_ns && bytes <= point.worst_bytes) << "seed " << seed;
      }
    }
  }
}

TEST(ParetoFront, MemoryWeightPicksThePoint) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const TwoResources units = random_units(seed, 20);
    const auto front = pareto_front(units, 4, kShape, 0, 12);

    EXPECT_EQ(&choose_point(front, units, 0.0), &front.front());
    EXPECT_EQ(&choose_point(front, units, 1.0), &front.back());
    EXPECT_LE(choose_point(front, units, 0.8).worst_bytes,
              choose_point(front, units, 0.2).worst_bytes);
  }
}

TEST(ParetoFront, CapacityLeavesOutWhatDoesNotFit) {
  const TwoResources units = random_units(3, 20);
  const auto front = pareto_front(units, 4, kShape, 0, 12);
  ASSERT_GT(front.size(), 2U);

  const std::int64_t between = (front.front().worst_bytes + front.back().worst_bytes) / 2;
  const auto within = pareto_front(units, 4, kShape, between, 12);

  EXPECT_LE(within.front().worst_bytes, between);
  EXPECT_GT(within.front().worst_time_ns, front.front().worst_time_ns);
  EXPECT_TRUE(pareto_front(units, 4, kShape, front.back().worst_bytes - 1, 12).empty());
}

}  // namespace
}  // namespace smp::partition
