// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/communicator.h"

#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/smddp/collectives/rank_threads.h"

namespace smp::collectives {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

// Small, so that a test of some kilobytes walks through many rounds and all buffers.
constexpr Tuning kSmallSlots{.buffer_bytes = 512, .small_bytes = 64};
constexpr int kRanks = 4;

std::vector<float> sum_in_rank_order(int ranks, size_t count) {
  std::vector<float> sum = values_of(0, count);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<float> next = values_of(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += next[i];
  }
  return sum;
}

class CommunicatorSizes : public testing::TestWithParam<size_t> {};

TEST_P(CommunicatorSizes, AllReduceAddsInRankOrderOnEveryRank) {
  const size_t count = GetParam();
  const std::vector<float> expected = sum_in_rank_order(kRanks, count);

  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    for (int turn = 0; turn < 3;
         ++turn) {  // buffers and mailboxes of the turn before are used again
      std::vector<float> data = values_of(group.rank(), count);
      group.all_reduce(call_of(count), bytes_of(data), bytes_of(data), a_limit());
      if (data != expected) throw InternalError("turn {} is wrong", turn);
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(CommunicatorSizes, ReduceWritesOnlyAtTheRoot) {
  const size_t count = GetParam();
  const std::vector<float> expected = sum_in_rank_order(kRanks, count);

  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    for (int root = 0; root < kRanks; ++root) {
      const std::vector<float> mine = values_of(group.rank(), count);
      std::vector<float> data = mine;
      group.reduce(call_of(count), root, bytes_of(data), bytes_of(data), a_limit());
      if (data != (group.rank() == root ? expected : mine)) throw InternalError("root {}", root);
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(CommunicatorSizes, ReduceScatterGivesEachRankItsShareOfTheSum) {
  const size_t count = GetParam();
  const std::vector<float> sum = sum_in_rank_order(kRanks, count * kRanks);

  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    const std::vector<float> mine = values_of(group.rank(), count * kRanks);
    std::vector<ConstBytes> inputs;
    for (size_t r = 0; r < kRanks; ++r) {
      inputs.push_back(bytes_of(mine).subspan(r * count * 4, count * 4));
    }
    std::vector<float> chunk(count);
    group.reduce_scatter(call_of(count), inputs, bytes_of(chunk), a_limit());
    const auto start = sum.begin() + static_cast<ptrdiff_t>(count) * group.rank();
    if (!std::equal(chunk.begin(), chunk.end(), start)) throw InternalError("wrong chunk");
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(CommunicatorSizes, AllGatherGatherScatterAndBroadcastMoveEveryByte) {
  const size_t count = GetParam();

  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    const std::vector<float> mine = values_of(group.rank(), count);
    std::vector<std::vector<float>> all(kRanks, std::vector<float>(count));
    std::vector<Bytes> outputs;
    for (auto& one : all) outputs.push_back(bytes_of(one));
    group.all_gather(call_of(count), bytes_of(mine), outputs, a_limit());
    for (int r = 0; r < kRanks; ++r) {
      if (all[static_cast<size_t>(r)] != values_of(r, count)) throw InternalError("all_gather");
    }
    for (int root = 0; root < kRanks; ++root) {
      const bool here = group.rank() == root;
      std::vector<float> data = mine;
      group.broadcast(call_of(count), root, bytes_of(data), a_limit());
      if (data != values_of(root, count)) throw InternalError("broadcast from {}", root);

      std::vector<ConstBytes> parts;
      for (const auto& one : all) parts.push_back(bytes_of(one));
      std::vector<float> part(count);
      group.scatter(call_of(count), root, here ? parts : std::vector<ConstBytes>(), bytes_of(part),
                    a_limit());
      if (part != mine) throw InternalError("scatter from {}", root);

      std::vector<std::vector<float>> gathered(kRanks, std::vector<float>(count));
      std::vector<Bytes> places;
      for (auto& one : gathered) places.push_back(bytes_of(one));
      group.gather(call_of(count), root, bytes_of(mine), here ? places : std::vector<Bytes>(),
                   a_limit());
      if (here && gathered != all) throw InternalError("gather to {}", root);
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Nothing, one, what one step carries (64 bytes) and one more, primes, many rounds.
INSTANTIATE_TEST_SUITE_P(Counts, CommunicatorSizes,
                         testing::Values(0, 1, 3, 16, 17, 127, 1009, 5003));

TEST(Communicator, SlotsThatAreTooSmallForTheGroupAreEnlarged) {
  constexpr size_t kCount = 127;
  const std::vector<float> expected = sum_in_rank_order(kRanks, kCount);

  for (const size_t buffer_bytes : {1, 64, 65, 191}) {
    const Tuning tuning{.buffer_bytes = buffer_bytes, .small_bytes = 1};
    const auto errors = run_ranks(kRanks, tuning, [&](Communicator& group) {
      const std::vector<float> mine = values_of(group.rank(), kCount);
      std::vector<float> data = mine;
      group.all_reduce(call_of(kCount), bytes_of(data), bytes_of(data), a_limit());
      if (data != expected) throw InternalError("all_reduce");
      std::vector<std::vector<float>> all(kRanks, std::vector<float>(kCount));
      std::vector<Bytes> outputs;
      for (auto& one : all) outputs.push_back(bytes_of(one));
      group.all_gather(call_of(kCount), bytes_of(mine), outputs, a_limit());
      if (all.back() != values_of(kRanks - 1, kCount)) throw InternalError("all_gather");
    });

    EXPECT_THAT(errors, Each(IsEmpty())) << buffer_bytes;
  }
}

TEST(Communicator, AllToAllMovesUnevenParts) {
  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    // Rank a sends 100 * a + 7 * b bytes of value 16 * a + b to rank b.
    const auto size = [](int a, int b) { return static_cast<size_t>(100 * a + 7 * b); };
    std::vector<std::vector<uint8_t>> sent;
    std::vector<std::vector<uint8_t>> received;
    std::vector<ConstBytes> inputs;
    std::vector<Bytes> outputs;
    for (int peer = 0; peer < kRanks; ++peer) {
      sent.emplace_back(size(group.rank(), peer), static_cast<uint8_t>(16 * group.rank() + peer));
      received.emplace_back(size(peer, group.rank()));
    }
    for (const auto& one : sent) inputs.push_back(bytes_of(one));
    for (auto& one : received) outputs.push_back(bytes_of(one));
    group.all_to_all(call_of(0, ElementType::kUint8), inputs, outputs, a_limit());
    for (int peer = 0; peer < kRanks; ++peer) {
      const std::vector<uint8_t> expected(size(peer, group.rank()),
                                          static_cast<uint8_t>(16 * peer + group.rank()));
      if (received[static_cast<size_t>(peer)] != expected) throw InternalError("from {}", peer);
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Communicator, AverageDividesBySize) {
  const auto errors = run_ranks(3, kSmallSlots, [&](Communicator& group) {
    std::vector<float> data(1000, static_cast<float>(group.rank()) * 1.5F);
    CallSignature call = call_of(data.size());
    call.op = ReduceOp::kAverage;
    group.all_reduce(call, bytes_of(data), bytes_of(data), a_limit());
    if (data != std::vector<float>(1000, 1.5F)) throw InternalError("{}", data[0]);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(Communicator, DifferentSizesAreAnErrorOnEveryRankThatNamesRanksAndShapes) {
  const auto errors = run_ranks(kRanks, kSmallSlots, [&](Communicator& group) {
    std::vector<float> data(group.rank() == 2 ? 30 : 40);
    group.all_reduce(call_of(data.size()), bytes_of(data), bytes_of(data), a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("rank(s) 2 called all_reduce #0 of float32 [30], sum")));
  EXPECT_THAT(errors, Each(HasSubstr("rank(s) 0, 1, 3 called all_reduce #0 of float32 [40], sum")));
}

TEST(Communicator, AMismatchOfRanksThatCallFromSeveralThreadsSaysThatThreadsNeedAnOrder) {
  const auto errors = run_ranks(2, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 1) group.note_several_threads();
    std::vector<float> data(group.rank() + 1U);
    group.all_reduce(call_of(data.size()), bytes_of(data), bytes_of(data), a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("Calls of rank(s) 1 came from several threads: threads that "
                                     "use one group need one order on all ranks")));
}

TEST(Communicator, WhatALookThrowsEndsTheCallAndTheGroup) {
  struct Interrupted {};
  std::latch interrupted(1);

  const auto errors = run_ranks(2, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 1) {
      interrupted.wait();
      return group.barrier(a_limit());
    }
    transport::WaitLimit limit = a_limit();
    limit.look_around = [] { throw Interrupted(); };
    EXPECT_THROW(group.barrier(limit), Interrupted);
    interrupted.count_down();
  });

  EXPECT_THAT(errors[0], IsEmpty());
  EXPECT_THAT(errors[1], HasSubstr("rank 0 gave up call #0 of the group"));
}

TEST(Communicator, DifferentCallsAreAnErrorOnEveryRank) {
  const auto errors = run_ranks(2, kSmallSlots, [&](Communicator& group) {
    std::vector<float> data(4);
    if (group.rank() == 0) {
      group.barrier(a_limit());
    } else {
      group.broadcast(call_of(4), 1, bytes_of(data), a_limit());
    }
  });

  EXPECT_THAT(errors,
              Each(HasSubstr("rank(s) 0 called barrier #0; rank(s) 1 called broadcast #0")));
}

TEST(Communicator, SplitsThatDoNotAgreeAreAnErrorOnEveryRank) {
  const auto errors = run_ranks(2, kSmallSlots, [&](Communicator& group) {
    const std::vector<uint8_t> sent(8);
    std::vector<uint8_t> received(group.rank() == 0 ? 8 : 9);
    const std::vector<ConstBytes> inputs(2, bytes_of(sent));
    const std::vector<Bytes> outputs(2, bytes_of(received));
    group.all_to_all(call_of(0, ElementType::kUint8), inputs, outputs, a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("rank 0 sends 8 bytes to rank 1, which expects 9")));
}

TEST(Communicator, ARankThatDoesNotComeIsNamedWhenTheLimitPasses) {
  std::latch given_up(2);

  const auto errors = run_ranks(3, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 1) {
      given_up.wait();
      return group.barrier(a_limit());
    }
    try {
      group.barrier(a_limit(std::chrono::seconds(2)));
    } catch (const HostError&) {
      given_up.count_down();
      throw;
    }
  });

  EXPECT_THAT(errors, Each(HasSubstr("waited 2000 ms for rank(s) 1, which did not take part")));
}

TEST(Communicator, ARankThatLeavesIsNamed) {
  const auto errors = run_ranks(3, kSmallSlots, [&](Communicator& group) {
    if (group.rank() != 1) group.barrier(a_limit());
  });

  EXPECT_THAT(errors[0], HasSubstr("rank 1 has left the group"));
  EXPECT_THAT(errors[2], HasSubstr("rank 1 has left the group"));
}

TEST(Communicator, AbortEndsWaitsOnEveryRankWithItsReason) {
  const auto errors = run_ranks(2, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 0) group.abort("enough");
    group.barrier(a_limit());
    group.barrier(a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("enough")));
}

TEST(Communicator, BitsOfFloatsAreRefusedBeforeAnybodyWaits) {
  const auto errors = run_ranks(1, kSmallSlots, [&](Communicator& group) {
    std::vector<float> data(1);
    CallSignature call = call_of(1);
    call.op = ReduceOp::kBitXor;
    group.all_reduce(call, bytes_of(data), bytes_of(data), a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("cannot reduce float32 tensors with bxor")));
}

}  // namespace
}  // namespace smp::collectives
