// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/copy_plan.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(CopyPlan, SendsEachFileToTheHostThatWantsIt) {
  const std::vector<CopyWish> wishes{{.offered = {{"a", 5}}, .wanted = {"b"}},
                                     {.offered = {{"b", 7}}, .wanted = {"a"}}};

  EXPECT_THAT(plan_copies(wishes, std::vector{0, 1}),
              ElementsAre(FileCopy{.name = "b", .bytes = 7, .from = 1, .to = 0},
                          FileCopy{.name = "a", .bytes = 5, .from = 0, .to = 1}));
}

TEST(CopyPlan, SendsAFileToAHostOnce) {
  const std::vector<CopyWish> wishes{
      {.offered = {{"a", 5}}}, {.wanted = {"a"}}, {.wanted = {"a"}}, {.wanted = {"a"}}};

  const auto plan = plan_copies(wishes, std::vector{0, 1, 1, 2});

  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[0].to, 1);
  EXPECT_EQ(plan[1].to, 3);
}

TEST(CopyPlan, IsEmptyWhereNobodyWantsAnything) {
  EXPECT_THAT(plan_copies(std::vector<CopyWish>{{.offered = {{"a", 5}}}, {}}, std::vector{0, 1}),
              IsEmpty());
}

TEST(CopyPlan, NamesAFileThatNobodyHas) {
  const std::vector<CopyWish> wishes{{.wanted = {"gone"}}};

  EXPECT_THAT([&] { plan_copies(wishes, std::vector{0}); },
              ThrowsMessage<HostError>(HasSubstr("no host has gone")));
}

/// Rounds until all copies are made, where a rank does one at a time and has to have what it sends.
int rounds_of(const std::vector<FileCopy>& plan, std::size_t ranks) {
  std::vector<int> free_at(ranks);
  for (const FileCopy& copy : plan) {
    int& from = free_at[static_cast<std::size_t>(copy.from)];
    int& to = free_at[static_cast<std::size_t>(copy.to)];
    from = to = std::max(from, to) + 1;
  }
  return *std::ranges::max_element(free_at);
}

TEST(CopyPlan, DoublesThoseWhoHaveAFileInEveryRound) {
  std::vector<CopyWish> wishes(64, CopyWish{.wanted = {"a"}});
  wishes[0] = {.offered = {{"a", 1}}};
  std::vector<int> hosts(64);
  std::iota(hosts.begin(), hosts.end(), 0);

  const auto plan = plan_copies(wishes, hosts);

  EXPECT_EQ(plan.size(), 63U);
  EXPECT_EQ(rounds_of(plan, wishes.size()), 6);
}

}  // namespace
}  // namespace smp::checkpoint
