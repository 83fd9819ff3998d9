// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/manual_partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/partition/model_trees.h"
#include "tests/unit/refusal.h"

namespace smp::partition {
namespace {

using testing::HasSubstr;

TEST(AssignManual, UnmarkedModulesGoToTheDefault) {
  TreeBuilder model;
  model.add("a", 1).add_pinned("b", 0, 1);

  const Assignment assignment = assign_manual(model.tree(), 2, 1);

  EXPECT_EQ(assignment.at(""), 1);
  EXPECT_EQ(assignment.at("a"), 1);
  EXPECT_EQ(assignment.at("b"), 0);
}

TEST(AssignManual, ChildrenInheritAndTheInnermostPinWins) {
  TreeBuilder model;
  model.add_pinned("outer", 1).add("outer.plain", 1).add_pinned("outer.inner", 2);
  model.add("outer.inner.leaf", 1);

  const Assignment assignment = assign_manual(model.tree(), 3, 0);

  EXPECT_EQ(assignment.at("outer.plain"), 1);
  EXPECT_EQ(assignment.at("outer.inner"), 2);
  EXPECT_EQ(assignment.at("outer.inner.leaf"), 2);
}

TEST(AssignManual, APinOutsideIsRefused) {
  TreeBuilder model;
  model.add_pinned("fc", 2, 1);

  EXPECT_THAT(refusal([&] { assign_manual(model.tree(), 2, 0); }),
              HasSubstr("module fc is put on partition 2; expected 0 to 1 with partitions=2"));
}

TEST(AssignManual, SharedParametersMustStayTogether) {
  TreeBuilder model;
  model.add("embed", 4).add_pinned("stack", 1).add_sharing("stack.head", "embed");

  EXPECT_THAT(refusal([&] { assign_manual(model.tree(), 2, 0); }),
              HasSubstr("modules embed (partition 0) and stack.head (partition 1) share parameter "
                        "embed.weight; put both on one partition"));
  EXPECT_EQ(assign_manual(model.tree(), 2, 1).at("embed"), 1);
}

}  // namespace
}  // namespace smp::partition
