// SPDX-License-Identifier: Apache-2.0
// Ranks that find each other in a store, as threads; what an earlier group left there is not
// theirs.
#include "smp_runtime/transport/meeting.h"

#include <future>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/transport/store_of_threads.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

WaitLimit within(milliseconds timeout) { return WaitLimit::after(timeout, "making a group"); }

/// Three ranks, called 10, 11 and 12 in messages.
Attendee rank(int number) {
  return {.rank = number,
          .names = {10, 11, 12},
          .host = number == 2 ? "there" : "here",
          .end_of = {},
          .late_grace = milliseconds(200),
          .patience = milliseconds(10)};
}

/// Outcome of one attendee: its prefix, or an error.
using Coming = std::future<std::string>;

Coming come(StoreOfThreads& store, Attendee who, milliseconds timeout = milliseconds(60'000)) {
  return std::async(std::launch::async, [&store, who, timeout]() -> std::string {
    try {
      return Meeting(store, who, within(timeout)).prefix();
    } catch (const HostError& error) {
      return error.what();
    }
  });
}

std::string card_of(StoreOfThreads& store, int rank) {
  const std::string key = "card/" + std::to_string(rank);
  return store.has(key) ? store.get(key, within(milliseconds(0))) : "";
}

/// A rank that has laid down its card, in the place of `before`.
Coming come_first(StoreOfThreads& store, int number) {
  const std::string before = card_of(store, number);
  Coming coming = come(store, rank(number));
  while (card_of(store, number) == before) std::this_thread::yield();
  return coming;
}

std::vector<std::string> results(std::vector<Coming>& coming) {
  std::vector<std::string> texts;
  for (Coming& one : coming) texts.push_back(one.get());
  return texts;
}

std::vector<std::string> all_come(StoreOfThreads& store) {
  std::vector<Coming> coming;
  for (const int one : {0, 1, 2}) coming.push_back(come(store, rank(one)));
  return results(coming);
}

TEST(Meeting, TellsWhereAllRanksAre) {
  StoreOfThreads store;
  std::vector<Coming> others;
  for (const int one : {0, 1}) others.push_back(come(store, rank(one)));

  const Meeting meeting(store, rank(2), within(milliseconds(60'000)));

  EXPECT_THAT(meeting.hosts(), testing::ElementsAre("here", "here", "there"));
  EXPECT_THAT(results(others), Each(meeting.prefix()));
}

TEST(Meeting, OfOneRankAsksNoStore) {
  StoreOfThreads store;

  const Meeting meeting(store, {.rank = 0, .names = {7}, .host = "here", .end_of = {}},
                        within(milliseconds(0)));

  EXPECT_FALSE(store.has("card/0"));
  EXPECT_THAT(meeting.hosts(), testing::ElementsAre("here"));
}

class MeetingOverAnOldStore : public testing::TestWithParam<std::vector<int>> {};

TEST_P(MeetingOverAnOldStore, NeverMeetsTheRanksOfAnEarlierGroup) {
  StoreOfThreads store;
  std::set<std::string> prefixes;
  for (int turn = 0; turn < 4; ++turn) {
    std::vector<Coming> coming;
    for (const int one : GetParam()) coming.push_back(come_first(store, one));

    const std::vector<std::string> met = results(coming);

    EXPECT_THAT(met, Each(met.front()));
    EXPECT_THAT(met.front(), Not(HasSubstr("making a group")));
    prefixes.insert(met.front());
  }
  EXPECT_EQ(prefixes.size(), 4U);
}

INSTANTIATE_TEST_SUITE_P(Orders, MeetingOverAnOldStore,
                         testing::Values(std::vector{0, 1, 2}, std::vector{2, 1, 0},
                                         std::vector{1, 0, 2}));

TEST(MeetingOverAStoreOfAJobThatWasKilled, OneCardThatNobodyAnswersForIsNoRank) {
  StoreOfThreads store;
  // Two of the three came, and did not meet.
  EXPECT_THAT(come(store, rank(1), milliseconds(1)).get(), HasSubstr("rank(s) 10"));

  EXPECT_THAT(all_come(store), Each(Not(HasSubstr("making a group"))));
}

TEST(Meeting, ARankThatDoesNotComeIsNamedOnAllThatDid) {
  StoreOfThreads store;
  std::vector<Coming> coming;
  coming.push_back(come(store, rank(0), milliseconds(2000)));
  coming.push_back(come(store, rank(2), milliseconds(2000)));

  EXPECT_THAT(results(coming),
              Each(HasSubstr("rank 10 waited 2000 ms for rank(s) 11, which did not "
                             "come")));
}

class ARankThatDeclines : public testing::TestWithParam<int> {};

TEST_P(ARankThatDeclines, TellsAllOthersWhy) {
  StoreOfThreads store;
  std::vector<Coming> coming;
  for (const int one : {0, 1, 2}) {
    if (one != GetParam()) coming.push_back(come_first(store, one));
  }

  Meeting::decline(store, rank(GetParam()), "it has no memory");

  const std::string name = std::to_string(10 + GetParam());
  EXPECT_THAT(results(coming),
              Each(HasSubstr("rank " + name + " cannot make the group: it has no memory")));
}

INSTANTIATE_TEST_SUITE_P(Ranks, ARankThatDeclines, testing::Values(0, 1, 2));

TEST(Meeting, ARankThatHasEndedIsNotWaitedFor) {
  StoreOfThreads store;
  std::vector<Coming> coming;
  for (const int one : {0, 1}) {  // only rank 1 knows
    Attendee who = rank(one);
    if (one == 1) who.end_of = [](int name) { return name == 12 ? "rank 12 is gone" : ""; };
    coming.push_back(come(store, who));
  }

  EXPECT_THAT(results(coming), Each(HasSubstr("rank 12 is gone")));
}

class TwoOfOneRank : public testing::TestWithParam<int> {};

TEST_P(TwoOfOneRank, OneIsToldSoAndNobodyWaits) {
  StoreOfThreads store;
  std::vector<Coming> coming;
  coming.push_back(come_first(store, GetParam()));
  coming.push_back(come_first(store, GetParam()));
  for (const int one : {0, 1, 2}) {
    if (one != GetParam()) coming.push_back(come(store, rank(one)));
  }

  const std::string name = std::to_string(10 + GetParam());
  const std::vector<std::string> met = results(coming);

  // An attendee that is not told so has met with one of the two.
  const auto told = AllOf(HasSubstr("two processes are rank " + name), HasSubstr("--node_rank"));
  EXPECT_THAT(met, testing::Contains(told));
  EXPECT_THAT(met, Each(testing::AnyOf(told, met.back())));
}

INSTANTIATE_TEST_SUITE_P(Ranks, TwoOfOneRank, testing::Values(0, 1, 2));

TEST(TwoOfOneRankOneAfterTheOther, TheSecondIsToldThatItsPlaceIsTaken) {
  StoreOfThreads store;
  EXPECT_THAT(all_come(store), Each(Not(HasSubstr("making a group"))));
  // As if other processes had met, after this one began.
  for (const std::string number : {"0", "1", "2"}) {
    MeetingCard card = *MeetingCard::parse(card_of(store, std::stoi(number)));
    const std::string call = "call/" + card.nonce;
    const std::string leader =
        store.has(call) ? store.get(call, within(milliseconds(0))) : card.nonce;
    std::string roster = store.get("roster/" + leader, within(milliseconds(0)));
    const std::string text = card.text();
    card.process = 1;
    card.came_ms += 2000;
    roster.replace(roster.find(text), text.size(), card.text());
    store.set("roster/" + leader, roster);
    store.set("card/" + number, card.text());
  }

  EXPECT_THAT(come(store, rank(1)).get(), HasSubstr("two processes are rank 11: process 1 of"));
}

TEST(Meeting, AFailureOfOneEndsTheWaitsOfOthersForItsKeys) {
  StoreOfThreads store;
  Coming third = come(store, rank(2));
  Coming waits = std::async(std::launch::async, [&]() -> std::string {
    Meeting meeting(store, rank(1), within(milliseconds(60'000)));
    try {
      return meeting.get("never", within(milliseconds(60'000)));
    } catch (const HostError& error) {
      return error.what();
    }
  });
  Meeting meeting(store, rank(0), within(milliseconds(60'000)));

  meeting.tell("no memory is left");
  meeting.tell("and this comes of it");

  EXPECT_EQ(waits.get(), "no memory is left");
  third.wait();
}

TEST(WaitLimit, OfATimeoutThatIsTooLongToCountIsFarAway) {
  const WaitLimit limit = within(milliseconds::max());

  EXPECT_GT(limit.deadline, Clock::now() + std::chrono::hours(24 * 365));
}

TEST(MeetingCard, IsWhatItsTextSays) {
  MeetingCard card = MeetingCard::fresh("here");
  card.failed = 3;
  card.reason = "several\nlines";

  const std::optional<MeetingCard> read = MeetingCard::parse(card.text());

  ASSERT_TRUE(read);
  EXPECT_TRUE(read->same_process(card));
  EXPECT_EQ(read->text(), card.text());
  EXPECT_LE(card.began_ms, card.came_ms);
  EXPECT_FALSE(MeetingCard::parse("of an earlier version"));
}

}  // namespace
}  // namespace smp::transport
