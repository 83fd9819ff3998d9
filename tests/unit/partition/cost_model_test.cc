// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/cost_model.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/partition/placement_tree.h"
#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(OwnCosts, MixMemoryAndTimeByWeight) {
  ModuleTree tree;
  tree.add_module({.name = ""});
  tree.add_module({.name = "memory",
                   .parameters = {tree.add_parameter("w", 60)},
                   .activation_bytes = 20,
                   .time_ns = 1},
                  0);
  tree.add_module({.name = "time", .activation_bytes = 20, .time_ns = 3}, 0);

  EXPECT_THAT(own_costs(tree, 1.0), ElementsAre(0, kWholeModel * 8 / 10, kWholeModel * 2 / 10));
  EXPECT_THAT(own_costs(tree, 0.0), ElementsAre(0, kWholeModel / 4, kWholeModel / 4 * 3));
}

TEST(OwnCosts, SumToTheWholeUpToRounding) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const ModuleTree tree = random_tree(seed, 80, true);
    for (const double weight : {0.0, 0.2, 0.8, 1.0}) {
      const std::vector<Cost> costs = own_costs(tree, weight);
      const Cost total = std::accumulate(costs.begin(), costs.end(), Cost{0});
      EXPECT_LE(total, kWholeModel);
      EXPECT_GE(total, kWholeModel - 2 * tree.size());
    }
  }
}

TEST(OwnCosts, WithoutTimesParametersStandForThem) {
  TreeBuilder model;
  model.add("a", 1).add("b", 3);

  EXPECT_THAT(own_costs(model.tree(), 0.5), ElementsAre(0, kWholeModel / 4, kWholeModel / 4 * 3));
}

TEST(OwnCosts, CountARecomputeAsAThirdAndWhatItMakesWhereThatIsKept) {
  ModuleTree tree;
  tree.add_module({.name = ""});
  tree.add_module({.name = "kept", .activation_bytes = 40, .time_ns = 30}, 0);
  tree.add_module({.name = "recomputed",
                   .activation_bytes = 10,
                   .time_ns = 30,
                   .recompute_ns = 30,
                   .recomputed_bytes = 30},
                  0);

  EXPECT_THAT(forward_times(tree), ElementsAre(0, 30, 30));
  EXPECT_THAT(own_times(tree), ElementsAre(0, 30, 40));
  EXPECT_THAT(own_costs(tree, 1.0), ElementsAre(0, kWholeModel * 4 / 5, kWholeModel / 5));
  EXPECT_THAT(own_costs(tree, 1.0, {.kept_activations = 2, .kept_recomputes = 1}),
              ElementsAre(0, kWholeModel * 80 / 130, kWholeModel * 50 / 130));
}

TEST(OwnCosts, AModelOfNothingCostsNothing) {
  TreeBuilder model;
  model.add("a");

  EXPECT_THAT(own_costs(model.tree(), 0.8), ElementsAre(0, 0));
}

TEST(OwnParameterBytes, CountASharedParameterOnce) {
  TreeBuilder model;
  model.add("a", 8).add_sharing("b", "a");

  EXPECT_THAT(own_parameter_bytes(model.tree()), ElementsAre(0, 8, 0));
}

TEST(PlacementTree, ListsDissolveAndFollowersRide) {
  TreeBuilder model;
  model.add("embed", 10).add_list("blocks").add("blocks.0", 20).add("blocks.1", 30);
  model.add("act").add_sharing("head", "embed");
  const ModuleTree& tree = model.tree();
  const auto node = [&](const char* name) { return tree.find(name).value(); };

  const std::vector<Placement> placements = make_placement_tree(tree, {1, 10, 2, 20, 30, 3, 4});

  EXPECT_THAT(placements[0].children,
              ElementsAre(node("embed"), node("blocks.0"), node("blocks.1")));
  EXPECT_THAT(placements[0].riders, ElementsAre(node("blocks"), node("act")));
  EXPECT_THAT(placements[node("embed")].riders, ElementsAre(node("head")));
  EXPECT_THAT(placements[node("blocks")].children, IsEmpty());
  EXPECT_EQ(placements[node("embed")].own, 14);
  EXPECT_EQ(placements[0].own, 1 + 2 + 3);
  EXPECT_EQ(placements[0].subtree, 70);
  EXPECT_EQ(placements[0].leaves, 3);
}

}  // namespace
}  // namespace smp::partition
