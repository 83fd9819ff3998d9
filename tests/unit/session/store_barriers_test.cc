// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/store_barriers.h"

#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace smp::session {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Runs `rank` for each rank on a thread of its own; its barriers share one store.
void on_ranks(int size, std::chrono::milliseconds timeout,
              const std::function<void(int, StoreBarriers&)>& rank) {
  const StorePtr store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> threads;
  for (int number = 0; number < size; ++number) {
    threads.emplace_back([&, number] {
      StoreBarriers barriers(store, number, size, timeout, nullptr);
      rank(number, barriers);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Text of the WaitTimeout of `action`; "done" without one.
std::string timeout_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const WaitTimeout& error) {
    return error.what();
  }
  return "done";
}

TEST(StoreBarriers, NobodyLeavesBeforeTheLastHasCome) {
  constexpr int kSize = 4;
  constexpr int kRounds = 20;
  std::atomic<int> came{0};
  on_ranks(kSize, 20s, [&](int, StoreBarriers& barriers) {
    for (int round = 1; round <= kRounds; ++round) {
      ++came;
      barriers.all("a test", "round", {0, 1, 2, 3});
      EXPECT_GE(came, round * kSize);
      barriers.all("a test", "end of round", {0, 1, 2, 3});
    }
  });
}

TEST(StoreBarriers, NameWhoDidNotCome) {
  on_ranks(3, 200ms, [](int rank, StoreBarriers& barriers) {
    if (rank == 1) return;
    EXPECT_THAT(
        timeout_of([&] {
          barriers.all("a test", "barrier", {2, 1, 0}, "ask rank 1");
        }),
        AllOf(HasSubstr("a test: rank "), HasSubstr("waited 0.2 s for rank 1 of ranks 0, 1, 2"),
              HasSubstr("SMP_TIMEOUT_SECONDS"), HasSubstr("; ask rank 1")));
  });
}

TEST(StoreBarriers, ARankThatIsAloneWaitsForNobody) {
  on_ranks(2, 200ms, [](int rank, StoreBarriers& barriers) {
    EXPECT_EQ(timeout_of([&] { barriers.all("a test", "alone", {rank}); }), "done");
  });
}

TEST(StoreBarriers, NotesArriveInTheOrderOfTheCalls) {
  constexpr int kNotes = 30;
  on_ranks(2, 20s, [](int rank, StoreBarriers& barriers) {
    for (int note = 0; note < kNotes; ++note) {
      if (rank == 0) {
        barriers.await_receiver("a test", barriers.announce("WORLD", 1, std::to_string(note)), 1);
      } else {
        EXPECT_EQ(barriers.await_sender("a test", "WORLD", 0), std::to_string(note));
      }
    }
  });
}

TEST(StoreBarriers, ASenderWithoutAReceiverIsTold) {
  on_ranks(1, 200ms, [](int, StoreBarriers& barriers) {
    const std::string call = barriers.announce("WORLD", 1, "");
    EXPECT_THAT(timeout_of([&] { barriers.await_receiver("smp.send", call, 1); }),
                HasSubstr("smp.send: rank 0 waited 0.2 s for rank 1"));
  });
}

}  // namespace
}  // namespace smp::session
