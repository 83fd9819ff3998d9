// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/interval_partitioner.h"

#include <algorithm>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::partition {
namespace {

using testing::ElementsAre;

constexpr Cost kNone = std::numeric_limits<Cost>::max();

Cost sum_of(const std::vector<std::int64_t>& amounts, int begin, int end) {
  Cost sum = 0;
  for (int i = begin; i < end; ++i) sum += amounts[i];
  return sum;
}

Cost cost_of(const IntervalProblem& problem, int begin, int end) {
  const Cost cuts = problem.cuts.empty() ? 0 : problem.cuts[begin] + problem.cuts[end];
  return sum_of(problem.weights, begin, end) + cuts;
}

bool allowed(const IntervalProblem& problem, int k, int begin, int end) {
  return std::all_of(problem.limits.begin(), problem.limits.end(), [&](const Limit& limit) {
    Cost used = sum_of(limit.fixed, begin, end);
    if (!limit.kept.empty()) used += sum_of(limit.kept, begin, end) * limit.times[k];
    return used <= limit.most;
  });
}

// The best of all ways to cut what starts at `begin` into the intervals from `k` on.
Cost try_all_cuts(const IntervalProblem& problem, int count, int k, int begin) {
  const int size = static_cast<int>(problem.weights.size());
  if (k == count - 1) {
    return allowed(problem, k, begin, size) ? cost_of(problem, begin, size) : kNone;
  }
  Cost best = kNone;
  for (int end = begin + 1; end <= size - (count - k - 1); ++end) {
    if (!allowed(problem, k, begin, end)) continue;
    best = std::min(
        best, std::max(cost_of(problem, begin, end), try_all_cuts(problem, count, k + 1, end)));
  }
  return best;
}

IntervalProblem random_problem(std::mt19937& random, bool cuts, bool limits) {
  const auto below = [&](int bound) { return static_cast<int>(random() % bound); };
  IntervalProblem problem;
  const int size = 1 + below(14);
  for (int i = 0; i < size; ++i) problem.weights.push_back(below(4) == 0 ? 0 : below(1000));
  if (cuts) {
    for (int i = 0; i <= size; ++i) problem.cuts.push_back(i % size == 0 ? 0 : below(600));
  }
  if (limits) {
    Limit limit{.fixed = {}, .kept = {}, .times = {4, 3, 2, 1}, .most = 0};
    for (int i = 0; i < size; ++i) {
      limit.fixed.push_back(below(100));
      limit.kept.push_back(below(50));
      limit.most += (limit.fixed.back() + limit.kept.back()) * (40 + below(60)) / 100;
    }
    problem.limits = {limit, {.fixed = problem.weights, .kept = {}, .times = {}, .most = 3000}};
  }
  return problem;
}

TEST(Intervals, EqualUnitsAreSplitEvenly) {
  const auto intervals = solve_intervals({.weights = std::vector<Cost>(12, 5)}, 4);

  EXPECT_THAT(intervals.value().ends, ElementsAre(3, 6, 9, 12));
  EXPECT_EQ(intervals->worst, 15);
}

TEST(Intervals, ADearCutIsAvoided) {
  const auto intervals =
      solve_intervals({.weights = {10, 10, 10, 10}, .cuts = {0, 1, 9, 1, 0}, .limits = {}}, 2);

  EXPECT_EQ(intervals.value().worst, 29) << "20 + 9 on both sides, against 30 + 1";
  EXPECT_THAT(intervals->ends, ElementsAre(2, 4));
  const auto dearer =
      solve_intervals({.weights = {10, 10, 10, 10}, .cuts = {0, 1, 12, 1, 0}, .limits = {}}, 2);
  EXPECT_EQ(dearer.value().worst, 31);
}

TEST(Intervals, UnitsThatFitNowhereLeaveNoSolution) {
  const Limit limit{.fixed = {1, 9, 1}, .kept = {}, .times = {}, .most = 8};

  EXPECT_EQ(solve_intervals({.weights = {1, 1, 1}, .cuts = {}, .limits = {limit}}, 2),
            std::nullopt);
}

class AnyProblem : public testing::TestWithParam<std::pair<bool, bool>> {};

TEST_P(AnyProblem, TheAnswerIsTheBestOfAllCuts) {
  const auto [cuts, limits] = GetParam();
  std::mt19937 random(7);
  int without_solution = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const IntervalProblem problem = random_problem(random, cuts, limits);
    const int size = static_cast<int>(problem.weights.size());
    const int count = 1 + static_cast<int>(random() % std::min(size, 4));

    const auto intervals = solve_intervals(problem, count);
    const Cost best = try_all_cuts(problem, count, 0, 0);

    ASSERT_EQ(intervals.has_value(), best != kNone) << "trial " << trial;
    if (!intervals) {
      ++without_solution;
      continue;
    }
    ASSERT_EQ(intervals->worst, best) << "trial " << trial;
    Cost worst = 0;
    for (int k = 0, begin = 0; k < count; begin = intervals->ends[k++]) {
      ASSERT_LT(begin, intervals->ends[k]);
      ASSERT_TRUE(allowed(problem, k, begin, intervals->ends[k]));
      worst = std::max(worst, cost_of(problem, begin, intervals->ends[k]));
    }
    ASSERT_EQ(worst, best);
    ASSERT_EQ(intervals->ends.back(), size);
  }
  if (limits) {
    EXPECT_GT(without_solution, 50);
  }
}

INSTANTIATE_TEST_SUITE_P(CutsAndLimits, AnyProblem,
                         testing::Values(std::pair{false, false}, std::pair{true, false},
                                         std::pair{false, true}, std::pair{true, true}));

}  // namespace
}  // namespace smp::partition
