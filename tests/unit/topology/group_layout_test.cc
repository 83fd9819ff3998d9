// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/topology/group_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::topology {
namespace {

using testing::ElementsAre;

/// One letter a rank: its host.
GroupLayout layout_of(std::string_view ranks, int rank) {
  std::vector<std::string> hosts;
  for (const char host : ranks) hosts.emplace_back(1, host);
  return GroupLayout::from(hosts, rank);
}

TEST(GroupLayout, CountsRanksByHost) {
  const GroupLayout layout = layout_of("abaab", 3);

  EXPECT_EQ(layout.hosts(), 2);
  EXPECT_EQ(layout.rails, 2);
  EXPECT_THAT(layout.ranks_on, ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1, 4)));
  EXPECT_EQ(layout.my_host(), 0);
  EXPECT_EQ(layout.my_local(), 2);
  EXPECT_FALSE(layout.has_rail());
}

TEST(GroupLayout, GathersAcrossHostsAndThenWithinTheOwn) {
  const auto steps = layout_of("aabb", 3).gather_steps();

  ASSERT_TRUE(steps);
  EXPECT_THAT(steps->across_hosts, ElementsAre(1, 3));
  EXPECT_THAT(steps->within_host, ElementsAre(2, 3));
}

TEST(GroupLayout, HasNoStepsWhereRanksDoNotLieEvenlyHostByHost) {
  for (const char* ranks : {"a", "aa", "ab", "aab", "aaabb", "abab", "abba"}) {
    EXPECT_FALSE(layout_of(ranks, 0).gather_steps()) << ranks;
  }
}

}  // namespace
}  // namespace smp::topology
