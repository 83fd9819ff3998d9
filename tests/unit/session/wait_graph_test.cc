// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/deadlock/wait_graph.h"

#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp::session {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A rank in its first call of `label`, which waits for `needs`.
Wait in(const std::string& label, std::vector<int> needs,
        std::map<std::string, std::int64_t> before = {}) {
  const std::int64_t turn = ++before[label];
  return {.number = 1,
          .label = label,
          .turn = turn,
          .text = label,
          .needs = std::move(needs),
          .begun = before};
}

TEST(WaitGraph, RanksInDifferentCallsWaitForEachOther) {
  const std::map<int, Wait> waits = {{0, in("state_dict", {1})}, {1, in("barrier", {0, 2})}};

  EXPECT_THAT(deadlock_of(waits, 0), ElementsAre(0, 1));
  EXPECT_THAT(deadlock_of(waits, 1), ElementsAre(1, 0));
  EXPECT_THAT(deadlock_of(waits, 2), IsEmpty());
}

TEST(WaitGraph, RanksInTheSameCallDoNot) {
  EXPECT_THAT(deadlock_of({{0, in("barrier", {1})}, {1, in("barrier", {0})}}, 0), IsEmpty());
}

TEST(WaitGraph, ARankThatMayStillComeKeepsNobodyForEver) {
  EXPECT_THAT(deadlock_of({{0, in("barrier", {1, 2})}, {1, in("barrier", {0, 2})}}, 0), IsEmpty());
}

TEST(WaitGraph, ARankThatHasPassedTheCallIsNotMissing) {
  // Rank 1 did its part of the sum and is in the next call; the last bytes are under way to rank 0.
  const std::map<int, Wait> waits = {{0, in("sum", {1})}, {1, in("barrier", {0}, {{"sum", 1}})}};

  EXPECT_THAT(deadlock_of(waits, 0), IsEmpty());
}

TEST(WaitGraph, TheSameLabelIsAnotherCallTheNextTime) {
  const std::map<int, Wait> waits = {{0, in("sum", {1}, {{"sum", 4}})},
                                     {1, in("barrier", {0}, {{"sum", 4}})}};

  EXPECT_THAT(deadlock_of(waits, 0), ElementsAre(0, 1));
}

TEST(WaitGraph, FollowsChainsOfRanks) {
  const std::map<int, Wait> waits = {
      {0, in("a", {1})}, {1, in("b", {2})}, {2, in("c", {3})}, {3, in("d", {1})}};

  EXPECT_THAT(deadlock_of(waits, 0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(deadlock_of({{0, in("a", {1})}, {1, in("b", {2})}}, 0), IsEmpty());
}

TEST(WaitGraph, ARankThatEndedWillNotCome) {
  const Wait ended{.ended = true, .begun = {{"barrier", 1}}};

  EXPECT_THAT(deadlock_of({{0, in("state_dict", {1})}, {1, ended}}, 0), ElementsAre(0, 1));
  EXPECT_THAT(deadlock_of({{0, in("barrier", {1})}, {1, ended}}, 0), IsEmpty()) << "it came";
}

TEST(WaitGraph, ARankThatWasToldOfAMismatchWillNotComeAndTellsIt) {
  const std::map<int, Wait> waits = {{0, in("state_dict", {1})}, {1, {.mismatch = "told"}}};

  EXPECT_THAT(deadlock_of(waits, 0), ElementsAre(0, 1));
  EXPECT_EQ(deadlock_text(waits, {0, 1}), "told");
}

TEST(WaitGraph, TextsNameCallsAndWhatToDo) {
  std::map<int, Wait> waits = {{0, in("state_dict", {1})}, {1, in("barrier", {0})}};
  waits[0].text = "model.state_dict() (train.py:7)";

  const std::string text = deadlock_text(waits, {0, 1});

  EXPECT_THAT(text, HasSubstr("rank 0 waits in model.state_dict() (train.py:7), rank 1 waits in "
                              "barrier: none of these calls can end"));
  EXPECT_THAT(text, HasSubstr("below `if rank == 0`"));
  waits[1] = {.ended = true};
  EXPECT_THAT(deadlock_text(waits, {0, 1}), HasSubstr("(train.py:7), rank 1 has ended:"));
}

TEST(WaitGraph, WaitsTravelAsText) {
  const Wait wait = in("barrier", {0, 2}, {{"sum", 3}});

  EXPECT_EQ(decode(encode(wait)), wait);
  EXPECT_EQ(decode(""), std::nullopt);
  EXPECT_EQ(decode("{}"), std::nullopt);
}

TEST(WaitGraph, TextsThatAreNoWaitsAreNone) {
  const std::string text = encode(in("barrier", {2}, {{"sum", 3}}));
  ASSERT_TRUE(decode(text));
  for (const auto& [number, other] : {std::pair("[2]", "[4294967298]"), std::pair("[2]", "[2.5]"),
                                      std::pair(":3", ":18446744073709551615")}) {
    std::string changed = text;
    ASSERT_NE(changed.find(number), std::string::npos) << text;
    changed.replace(changed.find(number), std::string(number).size(), other);
    EXPECT_EQ(decode(changed), std::nullopt) << other;
  }
  EXPECT_EQ(decode(std::string(1'000'000, '[')), std::nullopt);
}

}  // namespace
}  // namespace smp::session
