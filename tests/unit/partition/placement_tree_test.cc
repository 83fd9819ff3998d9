// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/placement_tree.h"

#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"

namespace smp::partition {
namespace {

std::string leader_of(const ModuleTree& tree, const std::string& name) {
  return tree.module(colocation_leaders(tree).at(tree.find(name).value())).name;
}

TEST(ColocationLeaders, AModuleOfItsOwnLeadsItself) {
  const ModuleTree tree = gpt(2, 64, 1000, /*tied=*/false);

  for (int node = 0; node < tree.size(); ++node) {
    EXPECT_EQ(colocation_leaders(tree)[node], node) << tree.module(node).name;
  }
}

TEST(ColocationLeaders, ATiedHeadFollowsTheEmbedding) {
  EXPECT_EQ(leader_of(gpt(2, 64, 1000), "lm_head"), "transformer.wte");
}

TEST(ColocationLeaders, TiesAreTransitive) {
  TreeBuilder model;
  model.add("a", 10).add_sharing("b", "a").add("c", 10);
  model.add_module({.name = "d", .parameters = {1, 0}});

  EXPECT_EQ(leader_of(model.tree(), "b"), "a");
  EXPECT_EQ(leader_of(model.tree(), "c"), "a");
  EXPECT_EQ(leader_of(model.tree(), "d"), "a");
}

TEST(ColocationLeaders, TwinTowersFollowEachOtherLevelByLevel) {
  TreeBuilder model;
  model.add("left").add("left.in", 10).add("left.out", 20);
  model.add("right").add_sharing("right.in", "left.in").add_sharing("right.out", "left.out");

  EXPECT_EQ(leader_of(model.tree(), "right"), "left");
  EXPECT_EQ(leader_of(model.tree(), "right.in"), "left.in");
  EXPECT_EQ(leader_of(model.tree(), "right.out"), "left.out");
}

TEST(ColocationLeaders, AWrapperIsNoTwinOfWhatItWraps) {
  TreeBuilder model;
  model.add("wrapper").add("wrapper.inner", 10).add("tail", 10);

  EXPECT_EQ(leader_of(model.tree(), "wrapper.inner"), "wrapper.inner");
}

TEST(ColocationLeaders, AParentWithTheParameterOfItsChildLeads) {
  TreeBuilder model;
  model.add("owner", 10).add_sharing("owner.user", "owner");

  EXPECT_EQ(leader_of(model.tree(), "owner.user"), "owner");
}

}  // namespace

}  // namespace smp::partition
