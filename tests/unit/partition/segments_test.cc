// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/segments.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::partition {
namespace {

using testing::ElementsAre;

Cost costliest(const std::vector<Cost>& costs, const std::vector<int>& ends, Cost extra) {
  Cost worst = 0;
  int begin = 0;
  for (const int end : ends) {
    Cost sum = begin == 0 ? extra : 0;
    for (; begin < end; ++begin) sum += costs[begin];
    worst = std::max(worst, sum);
  }
  return worst;
}

// Tries every set of cuts.
Cost optimum(const std::vector<Cost>& costs, int count, Cost extra) {
  const int size = static_cast<int>(costs.size());
  Cost best = std::numeric_limits<Cost>::max();
  for (unsigned mask = 0; mask < 1U << (size - 1); ++mask) {
    if (std::popcount(mask) != count - 1) continue;
    std::vector<int> ends;
    for (int i = 1; i < size; ++i) {
      if ((mask >> (i - 1) & 1U) != 0) ends.push_back(i);
    }
    ends.push_back(size);
    best = std::min(best, costliest(costs, ends, extra));
  }
  return best;
}

TEST(MinmaxSegments, EqualBruteForce) {
  std::mt19937 random(7);
  for (int round = 0; round < 400; ++round) {
    const int size = 1 + static_cast<int>(random() % 10);
    const int count = 1 + static_cast<int>(random() % size);
    const Cost extra = round % 2 == 0 ? 0 : random() % 50;
    std::vector<Cost> costs(size);
    for (Cost& cost : costs) cost = random() % 30;

    const std::vector<int> ends = minmax_segments(costs, count, extra);

    ASSERT_EQ(static_cast<int>(ends.size()), count);
    EXPECT_TRUE(std::is_sorted(ends.begin(), ends.end()));
    EXPECT_EQ(std::adjacent_find(ends.begin(), ends.end()), ends.end());
    EXPECT_GT(ends.front(), 0);
    EXPECT_EQ(ends.back(), size);
    EXPECT_EQ(costliest(costs, ends, extra), optimum(costs, count, extra));
  }
}

TEST(MinmaxSegments, CutAsFarLeftAsPossible) {
  const std::vector<Cost> equal{1, 1, 1, 1, 1};

  EXPECT_THAT(minmax_segments(equal, 2), ElementsAre(2, 5));
  EXPECT_THAT(minmax_segments(equal, 3), ElementsAre(1, 3, 5));
  EXPECT_THAT(minmax_segments(std::vector<Cost>{0, 0, 0}, 2), ElementsAre(1, 3));
}

TEST(MinmaxSegments, TheFirstOneCarriesTheExtra) {
  const std::vector<Cost> costs{1, 1, 1, 1};

  EXPECT_THAT(minmax_segments(costs, 2, 0), ElementsAre(2, 4));
  EXPECT_THAT(minmax_segments(costs, 2, 2), ElementsAre(1, 4));
}

TEST(DhondtSeats, GiveTextbookResults) {
  const std::vector<int> no_caps(4, 100);

  EXPECT_THAT(dhondt_seats(std::vector<Cost>{100'000, 80'000, 30'000, 20'000}, no_caps, 8),
              ElementsAre(4, 3, 1, 0));
  EXPECT_THAT(dhondt_seats(std::vector<Cost>{340'000, 280'000, 160'000, 60'000}, no_caps, 7),
              ElementsAre(3, 3, 1, 0));
  EXPECT_THAT(dhondt_seats(std::vector<Cost>{53'000, 24'000, 23'000}, std::vector<int>(3, 100), 7),
              ElementsAre(4, 2, 1));
}

TEST(DhondtSeats, TiesGoToTheLowestIndex) {
  EXPECT_THAT(dhondt_seats(std::vector<Cost>{5, 5, 5}, std::vector<int>(3, 9), 4),
              ElementsAre(2, 1, 1));
  EXPECT_THAT(dhondt_seats(std::vector<Cost>{0, 0}, std::vector<int>(2, 1), 2), ElementsAre(1, 1));
}

TEST(DhondtSeats, CapsHandSeatsOn) {
  const std::vector<Cost> costs{90, 5, 5};

  EXPECT_THAT(dhondt_seats(costs, std::vector<int>{1, 3, 3}, 4), ElementsAre(1, 2, 1));
  EXPECT_THAT(dhondt_seats(costs, std::vector<int>{1, 1, 1}, 8), ElementsAre(1, 1, 1));
}

TEST(DhondtSeats, LargeCostsDoNotOverflow) {
  const std::vector<Cost> costs{kWholeModel * 4'000'000, kWholeModel * 3'999'999};

  EXPECT_THAT(dhondt_seats(costs, std::vector<int>{1000, 1000}, 101), ElementsAre(51, 50));
}

}  // namespace
}  // namespace smp::partition
