// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/compat_partitioner.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/partition/placement_tree.h"
#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;

// The modules at which the partition changes, as the log has them.
std::string changes(const ModuleTree& tree, int partitions, double memory_weight = 1.0) {
  const std::string line = assignment_line(assign_compat(tree, partitions, memory_weight), tree);
  const size_t begin = line.find(": ") + 2;
  return line.substr(begin, line.find(';') - begin);
}

TEST(AssignCompat, OnePartitionTakesEverything) {
  EXPECT_EQ(changes(gpt(4, 64, 1000), 1), "(root)=0");
}

TEST(AssignCompat, PlainRowIsCutEvenly) {
  TreeBuilder model;
  model.add("a", 1).add("b", 1).add("c", 1).add("d", 1);

  EXPECT_EQ(changes(model.tree(), 2), "(root)=0 c=1 d=1");
  EXPECT_EQ(changes(model.tree(), 4), "(root)=0 b=1 c=2 d=3");
}

TEST(AssignCompat, AListThatIsNeverRunIsTransparent) {
  TreeBuilder with_list;
  with_list.add("in", 1).add_list("h").add("h.0", 1).add("h.1", 1).add("out", 1);
  TreeBuilder flat;
  flat.add("in", 1).add("h0", 1).add("h1", 1).add("out", 1);

  EXPECT_EQ(changes(with_list.tree(), 2), "(root)=0 h.1=1 out=1");
  EXPECT_EQ(changes(flat.tree(), 2), "(root)=0 h1=1 out=1");
}

TEST(AssignCompat, WhatIsNeverRunStaysWithItsParent) {
  TreeBuilder model;
  model.add("a", 10).add_module({.name = "table", .parameters = {0}, .called = false});
  model.add("b", 10);

  EXPECT_EQ(changes(model.tree(), 2), "(root)=0 b=1");
}

TEST(AssignCompat, ModulesWithoutParametersRunWithTheirParent) {
  TreeBuilder model;
  model.add("a", 1).add("act").add("act.inner").add("b").add("b.fc", 1).add("b.act");

  EXPECT_EQ(changes(model.tree(), 2), "(root)=0 b=1");
  EXPECT_EQ(assign_compat(model.tree(), 2, 1.0).at("b.act"), 1);
}

TEST(AssignCompat, TheParentsOwnLoadCounts) {
  TreeBuilder model;
  model.add_module({.name = "net", .parameters = {}}).add("net.a", 2).add("net.b", 2);
  model.add("net.c", 2).add("net.d", 2);
  TreeBuilder heavy;
  heavy.add("net", 4).add("net.a", 2).add("net.b", 2).add("net.c", 2).add("net.d", 2);

  EXPECT_EQ(changes(model.tree(), 2), "(root)=0 net.c=1 net.d=1");
  EXPECT_EQ(changes(heavy.tree(), 2), "(root)=0 net.b=1 net.c=1 net.d=1");
}

TEST(AssignCompat, AFatLeafTakesOneDeviceOnly) {
  TreeBuilder model;
  model.add("fat", 1000).add("a", 1).add("b", 1).add("c", 1);

  EXPECT_EQ(changes(model.tree(), 4), "(root)=0 a=1 b=2 c=3");
}

TEST(AssignCompat, DevicesAreContiguousRuns) {
  TreeBuilder model;
  model.add("left");
  for (const char* name : {"left.0", "left.1", "left.2", "left.3"}) model.add(name, 1);
  model.add("right");
  for (const char* name : {"right.0", "right.1", "right.2", "right.3"}) model.add(name, 1);

  EXPECT_EQ(changes(model.tree(), 4), "(root)=0 left.2=1 left.3=1 right=2 right.2=3 right.3=3");
}

TEST(AssignCompat, TheHeadStaysWithATiedEmbedding) {
  TreeBuilder model;
  model.add("embed", 40).add("b0", 20).add("b1", 20).add("b2", 20).add_sharing("head", "embed");

  EXPECT_EQ(changes(model.tree(), 2), "(root)=0 b0=1 b1=1 b2=1");
}

TEST(AssignCompat, GoldenGpt) {
  EXPECT_EQ(changes(gpt(12, 768, 50257), 2),
            "(root)=0 transformer.h.3=1 transformer.h.4=1 transformer.h.5=1 transformer.h.6=1 "
            "transformer.h.7=1 "
            "transformer.h.8=1 transformer.h.9=1 transformer.h.10=1 transformer.h.11=1 "
            "transformer.ln_f=1");
}

TEST(AssignCompat, GoldenUntiedGpt) {
  EXPECT_EQ(changes(gpt(4, 64, 100, /*tied=*/false), 4),
            "(root)=0 transformer.h.0=1 transformer.h.1=2 transformer.h.2=2 transformer.h.3=3 "
            "transformer.ln_f=3");
}

TEST(AssignCompat, GoldenT5) {
  EXPECT_EQ(changes(t5(4, 64, 1000), 4),
            "(root)=0 encoder.block.1=1 encoder.block.2=1 encoder.block.3=1 decoder=2 "
            "decoder.embed_tokens=0 decoder.block.2=3 decoder.block.3=3");
}

TEST(AssignCompat, MemoryWeightChoosesWhatIsBalanced) {
  ModuleTree tree;
  tree.add_module({.name = ""});
  for (const auto& [name, bytes] :
       {std::pair{"a", 30}, std::pair{"b", 10}, std::pair{"c", 10}, std::pair{"d", 10}}) {
    const int id = tree.add_parameter(name, bytes);
    tree.add_module({.name = name, .parameters = {id}, .time_ns = 5}, 0);
  }

  EXPECT_EQ(changes(tree, 2, 1.0), "(root)=0 b=1 c=1 d=1");
  EXPECT_EQ(changes(tree, 2, 0.0), "(root)=0 c=1 d=1");
}

std::vector<int> owners(const ModuleTree& tree, int parameter) {
  std::vector<int> found;
  for (int node = 0; node < tree.size(); ++node) {
    const auto& own = tree.module(node).parameters;
    if (std::find(own.begin(), own.end(), parameter) != own.end()) found.push_back(node);
  }
  return found;
}

class AnyTree : public testing::TestWithParam<int> {};

TEST_P(AnyTree, EveryModuleIsPlacedAndSharedOnesAreTogether) {
  const int partitions = GetParam();
  for (std::uint32_t seed = 0; seed < 150; ++seed) {
    const ModuleTree tree = random_tree(seed, 5 + static_cast<int>(seed) % 60, true);

    const Assignment assignment = assign_compat(tree, partitions, 0.8);

    EXPECT_NO_THROW(check_fits(assignment, tree, partitions)) << "seed " << seed;
    EXPECT_EQ(assignment.at(""), 0);
    for (int id = 0; id < static_cast<int>(tree.parameters().size()); ++id) {
      std::set<int> places;
      for (const int node : owners(tree, id)) places.insert(assignment.at(tree.module(node).name));
      EXPECT_LE(places.size(), 1U) << "seed " << seed;
    }
  }
}

TEST_P(AnyTree, NoPartitionIsEmptyWhenThereAreLeavesEnough) {
  const int partitions = GetParam();
  int judged = 0;
  for (std::uint32_t seed = 0; seed < 300; ++seed) {
    const ModuleTree tree = random_tree(seed, 60, seed % 2 == 0);
    if (make_placement_tree(tree, own_costs(tree, 0.8))[0].leaves < partitions) continue;
    ++judged;

    std::set<int> used;
    for (const auto& [name, partition] : assign_compat(tree, partitions, 0.8).partition_of) {
      used.insert(partition);
    }

    EXPECT_EQ(static_cast<int>(used.size()), partitions) << "seed " << seed;
  }
  EXPECT_GT(judged, 50);
}

TEST_P(AnyTree, TheDecisionDependsOnTheArgumentsOnly) {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    const Assignment one = assign_compat(random_tree(seed, 60, true), GetParam(), 0.3);
    const Assignment other = assign_compat(random_tree(seed, 60, true), GetParam(), 0.3);

    EXPECT_EQ(one, other);
  }
}

TEST_P(AnyTree, WhatIsNeverRunIsWithTheModuleThatUsesIt) {
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    const ModuleTree tree = random_tree(seed, 40, false);
    const Assignment assignment = assign_compat(tree, GetParam(), 0.8);

    for (int node = 1; node < tree.size(); ++node) {
      if (tree.module(node).called) continue;
      int user = tree.parent(node);
      while (user != 0 && !tree.module(user).called) user = tree.parent(user);
      EXPECT_EQ(assignment.at(tree.module(node).name), assignment.at(tree.module(user).name));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Partitions, AnyTree, testing::Values(1, 2, 3, 4, 8));

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
