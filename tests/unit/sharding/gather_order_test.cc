// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/torch_free/gather_order.h"

#include <gtest/gtest.h>

namespace smp::sharding {
namespace {

void run(GatherOrder& order, const std::vector<int>& units) {
  order.begin();
  for (const int unit : units) order.note(unit);
}

TEST(GatherOrder, ExpectsNothingInTheFirstPass) {
  GatherOrder order;
  order.begin();

  EXPECT_EQ(order.expected(0), std::nullopt);
  EXPECT_FALSE(order.note(3));
  EXPECT_EQ(order.score().expected, 0U);
}

TEST(GatherOrder, ExpectsInTheNextPassWhatItLearned) {
  GatherOrder order;
  run(order, {0, 1, 2, 1, 0});

  order.begin();

  EXPECT_EQ(order.expected(0), 0);
  EXPECT_TRUE(order.note(0));
  EXPECT_EQ(order.expected(0), 1);
  EXPECT_EQ(order.expected(3), 0);
  EXPECT_EQ(order.expected(4), std::nullopt);
  for (const int unit : {1, 2, 1, 0}) EXPECT_TRUE(order.note(unit));
  EXPECT_EQ(order.score().expected, 5U);
  EXPECT_EQ(order.score().needs, 5U);
}

TEST(GatherOrder, GivesUpAfterASurpriseAndLearnsAnew) {
  GatherOrder order;
  run(order, {0, 1, 2});
  order.begin();
  order.note(0);

  EXPECT_FALSE(order.note(2));

  EXPECT_EQ(order.expected(0), std::nullopt);
  EXPECT_FALSE(order.note(1)) << "even what was learned is no longer trusted";
  order.begin();
  EXPECT_EQ(order.expected(1), 2);
}

TEST(GatherOrder, KeepsWhatItKnowsOverAPassWithoutNeeds) {
  GatherOrder order;
  run(order, {4, 5});
  order.begin();

  order.begin();

  EXPECT_EQ(order.expected(0), 4);
}

}  // namespace
}  // namespace smp::sharding
