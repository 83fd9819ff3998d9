// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/deadlock/deadlock_detector.h"

#include <atomic>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/transport/store_of_threads.h"

namespace smp::session {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class LostStore : public transport::KeyValueStore {
 public:
  bool has(const std::string&) override { throw std::runtime_error("lost"); }
  std::optional<std::string> find(const std::string&) override { throw std::runtime_error("lost"); }
  void set(const std::string&, const std::string&) override { throw std::runtime_error("lost"); }
  std::string get(const std::string&, const transport::WaitLimit&) override {
    throw std::runtime_error("lost");
  }
};

constexpr DeadlockDetector::Timing kQuick{.tell = milliseconds(20),
                                          .judge = milliseconds(40),
                                          .poll = milliseconds(5),
                                          .confirmations = 3};

class Job : public testing::Test {
 protected:
  std::unique_ptr<DeadlockDetector> rank(int number) {
    return std::make_unique<DeadlockDetector>(
        store_, number, [number] { return "train.py:" + std::to_string(10 + number); }, kQuick);
  }

  static std::string diagnosis_of(const DeadlockDetector& watch, milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (watch.diagnosis().empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return watch.diagnosis();
  }

  std::string text_at(const std::string& key) {
    return store_->has(key) ? store_->get(key, transport::WaitLimit::after(kSoon, "a test")) : "";
  }

  /// Until `watch` has written its call down and polled a few times.
  void await_polls(int number) {
    const std::string key = "waits/" + std::to_string(number);
    while (text_at(key).empty()) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(20 * kQuick.poll);
  }

  static constexpr milliseconds kSoon{20000};
  std::shared_ptr<transport::StoreOfThreads> store_ = std::make_shared<transport::StoreOfThreads>();
};

TEST_F(Job, NamesBothCallsOnBothRanks) {
  const auto first = rank(0);
  const auto second = rank(1);
  first->begin("model.state_dict()", "state_dict", {0, 1});
  second->begin("smp.barrier over WORLD", "barrier", {0, 1});

  for (const auto* watch : {first.get(), second.get()}) {
    const std::string diagnosis = diagnosis_of(*watch, kSoon);
    EXPECT_THAT(diagnosis, HasSubstr("rank 0 waits in model.state_dict() (train.py:10)"));
    EXPECT_THAT(diagnosis, HasSubstr("rank 1 waits in smp.barrier over WORLD (train.py:11)"));
  }
}

TEST_F(Job, LetsARankComeLate) {
  const auto first = rank(0);
  const auto second = rank(1);
  first->begin("smp.barrier", "barrier", {0, 1});
  await_polls(0);
  EXPECT_EQ(first->diagnosis(), "");

  second->begin("smp.barrier", "barrier", {0, 1});
  await_polls(1);
  EXPECT_EQ(first->diagnosis(), "");
  EXPECT_EQ(second->diagnosis(), "");
}

TEST_F(Job, TakesBackWhatIsOver) {
  const auto first = rank(0);
  const auto call = first->begin("smp.barrier", "barrier", {0, 1});
  await_polls(0);

  first->end(call);

  EXPECT_TRUE(store_->has("waits/0"));
  EXPECT_EQ(text_at("waits/0"), "");
}

TEST_F(Job, TheLastCallCountsAndThenTheOneBefore) {
  const auto first = rank(0);
  const auto second = rank(1);
  second->begin("smp.barrier", "barrier", {0, 1});
  first->begin("train_step", "step", {0, 1});
  const auto last = first->begin("smp.recv_from", "pair", {2});
  await_polls(0);
  EXPECT_EQ(first->diagnosis(), "") << "rank 2 may still come";

  first->end(last);

  EXPECT_THAT(diagnosis_of(*first, kSoon), HasSubstr("rank 0 waits in train_step"));
}

TEST_F(Job, CallsOfSeveralThreadsEndInAnyOrder) {
  const auto first = rank(0);
  const auto second = rank(1);
  second->begin("smp.barrier", "barrier", {0, 1});
  const auto one_threads = first->begin("averaging", "averaging", {2});
  first->begin("train_step", "step", {0, 1});

  first->end(one_threads);

  EXPECT_THAT(diagnosis_of(*first, kSoon), HasSubstr("rank 0 waits in train_step"));
}

TEST_F(Job, ACallThatWasStartedAheadIsWaitedForByItsOwnTurn) {
  const auto first = rank(0);
  const auto second = rank(1);
  for (auto* watch : {first.get(), second.get()}) EXPECT_EQ(watch->start("shards"), 1);
  EXPECT_EQ(first->start("shards"), 2);
  second->begin("smp.barrier", "barrier", {0, 1});

  const auto call = first->begin("gathering a", "shards", {0, 1}, 1);
  await_polls(0);
  EXPECT_EQ(first->diagnosis(), "") << "rank 1 has started that one";
  first->end(call);
  first->begin("gathering b", "shards", {0, 1}, 2);

  EXPECT_THAT(diagnosis_of(*first, kSoon), HasSubstr("rank 0 waits in gathering b"));
}

TEST_F(Job, ARankThatLeavesIsNotWaitedFor) {
  const auto first = rank(0);
  const auto second = rank(1);
  second->leave();
  first->begin("smp.barrier", "barrier", {0, 1});

  EXPECT_THAT(diagnosis_of(*first, kSoon), HasSubstr("rank 1 has ended"));
}

TEST_F(Job, NoCallBeginsAfterAMismatch) {
  const auto first = rank(0);
  const auto second = rank(1);
  const auto call = first->begin("model.state_dict()", "state_dict", {0, 1});
  second->begin("smp.barrier", "barrier", {0, 1});
  ASSERT_NE(diagnosis_of(*first, kSoon), "");
  EXPECT_THROW(first->check(), CallMismatch);
  first->end(call);

  EXPECT_THAT(
      [&] {
        first->begin("smp.broadcast", "objects", {0, 1});
      },
      testing::ThrowsMessage<CallMismatch>(
          AllOf(HasSubstr("smp.broadcast after "), HasSubstr("model.state_dict()"))));
}

TEST_F(Job, ARankThatWasToldOfAMismatchHoldsUpNobody) {
  const auto first = rank(0);
  const auto second = rank(1);
  const auto call = first->begin("model.state_dict()", "state_dict", {0, 1});
  second->begin("smp.barrier", "barrier", {0, 1});
  const std::string told = diagnosis_of(*first, kSoon);
  ASSERT_THAT(told, HasSubstr("model.state_dict()"));
  EXPECT_THROW(first->check(), CallMismatch);
  first->end(call);
  // The script caught the error and goes on: the others must not take the call for begun.
  EXPECT_THROW(first->begin("smp.barrier", "barrier", {0, 2}), CallMismatch);
  EXPECT_THROW(first->check(), CallMismatch);

  const auto third = rank(2);
  third->begin("smp.barrier", "barrier", {0, 2});

  EXPECT_EQ(diagnosis_of(*third, kSoon), told);
  first->leave();
  EXPECT_THROW(third->check(), CallMismatch);
}

TEST_F(Job, WhatAPeerWasToldIsWhyACallFailed) {
  const auto first = rank(0);
  const auto second = rank(1);
  first->begin("model.state_dict()", "state_dict", {0, 1});
  second->begin("smp.barrier", "barrier", {0, 1});
  const std::string told = diagnosis_of(*first, kSoon);
  EXPECT_THROW(first->check(), CallMismatch);
  first->leave();

  const auto third = rank(2);  // it has just begun: nobody has looked for it so far
  third->begin("a sum", "sum", {0, 2});

  EXPECT_THAT([&] { third->check_failed(); }, testing::ThrowsMessage<CallMismatch>(told));
}

TEST_F(Job, AFailureWithoutAMismatchIsLeftAlone) {
  const auto first = rank(0);
  const auto call = first->begin("a sum", "sum", {0, 1});

  first->check_failed();  // rank 1 has said nothing

  EXPECT_EQ(first->diagnosis(), "");
  first->end(call);
  first->check_failed();  // in no call
}

TEST_F(Job, ProgramsWithoutALineOfAScriptAreTold) {
  DeadlockDetector first(store_, 0, {}, kQuick);
  const auto second = rank(1);
  first.begin("a sum", "sum", {0, 1});
  second->begin("smp.barrier", "barrier", {0, 1});

  EXPECT_THAT(diagnosis_of(first, kSoon), HasSubstr("rank 0 waits in a sum, rank 1"));
}

TEST_F(Job, RanksOfAGroupAreKnownByItsName) {
  const auto first = rank(0);
  first->add_group("smp0:internal:1", {0, 2});

  EXPECT_THAT(first->members("smp0:internal:1"), testing::ElementsAre(0, 2));
  EXPECT_THAT(first->members("the user's"), testing::IsEmpty());
}

/// Counts polls, each of which begins with what other ranks have told, and the waits that they
/// read.
class CountedStore : public transport::StoreOfThreads {
 public:
  std::optional<std::string> find(const std::string& key) override {
    ++(key.starts_with("waits/") ? waits : polls);
    return StoreOfThreads::find(key);
  }
  std::atomic<int> polls{0};
  std::atomic<int> waits{0};
};

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

TEST_F(Job, OfManyRanksAllAreToldOfTheOneInAnotherCall) {
  constexpr int kRanks = 60;
  constexpr int kOther = 37;
  std::vector<std::unique_ptr<DeadlockDetector>> ranks;
  for (int number = 0; number < kRanks; ++number) ranks.push_back(rank(number));
  for (int number = 0; number < kRanks; ++number) {
    const char* const call = number == kOther ? "model.state_dict()" : "smp.barrier";
    ranks[static_cast<std::size_t>(number)]->begin(call, call, ranks_below(kRanks));
  }

  for (int number = 0; number < kRanks; ++number) {
    const std::string diagnosis = diagnosis_of(*ranks[static_cast<std::size_t>(number)], kSoon);
    EXPECT_THAT(diagnosis, HasSubstr("rank " + std::to_string(number) + " waits in")) << number;
    EXPECT_THAT(diagnosis, HasSubstr("waits in model.state_dict() (train.py:47)")) << number;
    EXPECT_THAT(diagnosis, HasSubstr("waits in smp.barrier")) << number;
  }
}

TEST_F(Job, OfManyRanksThatWaitForALateOneEachPollsAFew) {
  constexpr int kRanks = 60;
  const auto counted = std::make_shared<CountedStore>();
  store_ = counted;
  std::vector<std::unique_ptr<DeadlockDetector>> ranks;
  for (int number = 0; number < kRanks; ++number) ranks.push_back(rank(number));
  for (int number = 1; number < kRanks; ++number) {
    ranks[static_cast<std::size_t>(number)]->begin("smp.barrier", "barrier", ranks_below(kRanks));
  }

  // Once all have told of their waits; before, a rank that finds none looks farther.
  double waits_a_poll = kRanks;
  const auto until = std::chrono::steady_clock::now() + kSoon;
  while (waits_a_poll >= 3 && std::chrono::steady_clock::now() < until) {
    counted->polls = counted->waits = 0;
    while (counted->polls < 2 * kRanks) std::this_thread::sleep_for(milliseconds(1));
    waits_a_poll = static_cast<double>(counted->waits) / counted->polls;
  }
  EXPECT_LT(waits_a_poll, 3);
  for (const auto& each : ranks) EXPECT_EQ(each->diagnosis(), "");
}

TEST_F(Job, AmongManyRanksOneThatHasLeftIsFound) {
  constexpr int kRanks = 40;
  std::vector<std::unique_ptr<DeadlockDetector>> ranks;
  for (int number = 0; number < kRanks; ++number) ranks.push_back(rank(number));
  ranks[11]->leave();
  for (const int number : {0, 39}) {
    ranks[static_cast<std::size_t>(number)]->begin("smp.barrier", "barrier", ranks_below(kRanks));
  }

  for (const int number : {0, 39}) {
    EXPECT_THAT(diagnosis_of(*ranks[static_cast<std::size_t>(number)], kSoon),
                HasSubstr("rank 11 has ended"));
  }
}

TEST_F(Job, ALostStoreJudgesNobody) {
  DeadlockDetector watch(
      std::make_shared<LostStore>(), 0, [] { return std::string(); }, kQuick);
  const auto call = watch.begin("smp.barrier", "barrier", {0, 1});

  EXPECT_EQ(diagnosis_of(watch, 20 * kQuick.poll), "");
  watch.end(call);
  watch.leave();
}

}  // namespace
}  // namespace smp::session
