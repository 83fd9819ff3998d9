// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/module_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::partition {
namespace {

using testing::ElementsAre;

ModuleTree small_tree() {
  ModuleTree tree;
  tree.add_module({.name = ""});
  tree.add_module({.name = "a"}, 0);
  tree.add_module({.name = "b"}, 0);
  tree.add_module({.name = "a.x"}, 1);
  tree.add_module({.name = "b.y"}, 2);
  return tree;
}

TEST(ModuleTree, ListsModulesInExecutionOrder) {
  EXPECT_THAT(small_tree().preorder(), ElementsAre(0, 1, 3, 2, 4));
}

TEST(ModuleTree, FindsModulesByName) {
  const ModuleTree tree = small_tree();

  EXPECT_EQ(tree.find("b.y"), 4);
  EXPECT_EQ(tree.find(""), 0);
  EXPECT_EQ(tree.find("c"), std::nullopt);
  EXPECT_EQ(display_name(tree.module(0)), "(root)");
  EXPECT_EQ(display_name(tree.module(3)), "a.x");
}

TEST(ModuleTree, KnowsWhatLiesBelow) {
  const ModuleTree tree = small_tree();

  EXPECT_TRUE(tree.contains(0, 4));
  EXPECT_TRUE(tree.contains(2, 4));
  EXPECT_TRUE(tree.contains(4, 4));
  EXPECT_FALSE(tree.contains(1, 4));
  EXPECT_FALSE(tree.contains(4, 2));
}

TEST(ModuleTree, RefusesWhatIsNoTree) {
  ModuleTree tree = small_tree();

  EXPECT_THROW(tree.add_module({.name = "second root"}), InternalError);
  EXPECT_THROW(tree.add_module({.name = "orphan"}, 5), InternalError);
  EXPECT_THROW(tree.add_module({.name = "a"}, 0), InternalError);
  EXPECT_THROW(tree.add_module({.name = "c", .parameters = {0}}, 0), InternalError);
  EXPECT_THROW(tree.add_module({.name = "c", .time_ns = -1}, 0), InternalError);
}

}  // namespace
}  // namespace smp::partition
