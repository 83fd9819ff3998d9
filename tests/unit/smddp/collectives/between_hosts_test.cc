// SPDX-License-Identifier: Apache-2.0
// Collectives of groups over several hosts, in one process: libfabric over the loopback, and over
// shared memory, whose provider knows no IP.
#include <algorithm>
#include <barrier>
#include <fstream>
#include <latch>
#include <limits>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/mailbox_relay.h"
#include "smp_runtime/transport/fabric/fabric_library.h"
#include "tests/unit/smddp/collectives/rank_threads.h"

/// LeakSanitizer asks for it. libfabric 1.17 loses what it knew of a connection that its other end
/// closes while it is made, as these tests do in some runs.
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }

namespace smp::collectives {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

/// libfabric reads what users of the backend have when the first group here loads it.
const bool kAsUsers = (transport::set_fabric_defaults(), true);

constexpr Tuning kSmallSlots{.buffer_bytes = 512, .network_buffer_bytes = 512, .small_bytes = 64};

/// The ranks of each host in their order, then the hosts; a few values go with the mailboxes, in
/// rank order.
std::vector<float> expected_sum(const std::vector<std::string>& hosts, size_t count, bool small) {
  const auto add = [](std::vector<float> a, const std::vector<float>& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
  };
  std::vector<std::string> order;
  std::vector<std::vector<float>> sums;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    const std::string key = small ? "all" : hosts[rank];
    const auto found = std::find(order.begin(), order.end(), key);
    const std::vector<float> values = values_of(static_cast<int>(rank), count);
    if (found == order.end()) {
      order.push_back(key);
      sums.push_back(values);
    } else {
      auto& sum = sums[static_cast<size_t>(found - order.begin())];
      sum = add(sum, values);
    }
  }
  std::vector<float> sum = sums.front();
  for (size_t host = 1; host < sums.size(); ++host) sum = add(sum, sums[host]);
  return sum;
}

struct Case {
  std::vector<std::string> hosts;
  size_t count;
  std::string provider = "tcp";
};

class BetweenHosts : public testing::TestWithParam<Case> {};

TEST_P(BetweenHosts, SumsAreThoseOfHostsInOrderOnEveryRank) {
  const auto& [hosts, count, provider] = GetParam();
  const int ranks = static_cast<int>(hosts.size());
  const std::vector<float> expected = expected_sum(hosts, count, count * sizeof(float) <= 64);
  const std::vector<float> chunks = expected_sum(hosts, count * hosts.size(), false);

  const auto job = [&](Communicator& group) {
    const std::vector<float> mine = values_of(group.rank(), count);
    for (int turn = 0; turn < 2;
         ++turn) {  // buffers and mailboxes of the turn before are used again
      std::vector<float> data = mine;
      group.all_reduce(call_of(count), bytes_of(data), bytes_of(data), a_limit());
      if (data != expected) throw InternalError("all_reduce, turn {}", turn);
    }
    for (int root = 0; root < ranks; ++root) {
      std::vector<float> data = mine;
      group.reduce(call_of(count), root, bytes_of(data), bytes_of(data), a_limit());
      if (data != (group.rank() == root ? expected : mine)) throw InternalError("reduce {}", root);
    }
    const std::vector<float> whole = values_of(group.rank(), count * hosts.size());
    std::vector<ConstBytes> inputs;
    for (size_t r = 0; r < hosts.size(); ++r) {
      inputs.push_back(bytes_of(whole).subspan(r * count * 4, count * 4));
    }
    std::vector<float> chunk(count);
    group.reduce_scatter(call_of(count), inputs, bytes_of(chunk), a_limit());
    const auto start = chunks.begin() + static_cast<ptrdiff_t>(count) * group.rank();
    if (!std::equal(chunk.begin(), chunk.end(), start)) throw InternalError("reduce_scatter");
  };
  const auto errors = run_hosts(hosts, kSmallSlots, job, provider);

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST_P(BetweenHosts, EveryByteArrives) {
  const auto& [hosts, count, provider] = GetParam();
  const int ranks = static_cast<int>(hosts.size());

  const auto job = [&](Communicator& group) {
    const std::vector<float> mine = values_of(group.rank(), count);
    std::vector<std::vector<float>> all(hosts.size(), std::vector<float>(count));
    std::vector<Bytes> outputs;
    for (auto& one : all) outputs.push_back(bytes_of(one));
    group.all_gather(call_of(count), bytes_of(mine), outputs, a_limit());
    for (int r = 0; r < ranks; ++r) {
      if (all[static_cast<size_t>(r)] != values_of(r, count)) throw InternalError("all_gather");
    }
    std::vector<ConstBytes> parts;
    for (const auto& one : all) parts.push_back(bytes_of(one));
    for (int root = 0; root < ranks; ++root) {
      const bool here = group.rank() == root;
      std::vector<float> data = mine;
      group.broadcast(call_of(count), root, bytes_of(data), a_limit());
      if (data != values_of(root, count)) throw InternalError("broadcast from {}", root);
      std::vector<float> part(count);
      group.scatter(call_of(count), root, here ? parts : std::vector<ConstBytes>(), bytes_of(part),
                    a_limit());
      if (part != mine) throw InternalError("scatter from {}", root);
      std::vector<std::vector<float>> gathered(hosts.size(), std::vector<float>(count));
      std::vector<Bytes> places;
      for (auto& one : gathered) places.push_back(bytes_of(one));
      group.gather(call_of(count), root, bytes_of(mine), here ? places : std::vector<Bytes>(),
                   a_limit());
      if (here && gathered != all) throw InternalError("gather to {}", root);
    }
    std::vector<std::vector<float>> received(hosts.size(), std::vector<float>(count));
    std::vector<Bytes> places;
    for (auto& one : received) places.push_back(bytes_of(one));
    CallSignature call = call_of(count);
    call.elements = 0;
    group.all_to_all(call, std::vector<ConstBytes>(hosts.size(), bytes_of(mine)), places,
                     a_limit());
    if (received != all) throw InternalError("all_to_all");
    group.barrier(a_limit());
  };
  const auto errors = run_hosts(hosts, kSmallSlots, job, provider);

  EXPECT_THAT(errors, Each(IsEmpty()));
}

// Two by two with nothing, what goes with the mailboxes, one more, and many rounds; ranks dealt out
// by turns on three hosts; hosts of unequal size.
INSTANTIATE_TEST_SUITE_P(
    Groups, BetweenHosts,
    testing::Values(Case{{"a", "a", "b", "b"}, 0}, Case{{"a", "a", "b", "b"}, 16},
                    Case{{"a", "a", "b", "b"}, 17}, Case{{"a", "a", "b", "b"}, 100'003},
                    Case{{"a", "b", "c", "a", "b", "c"}, 5003}, Case{{"a", "b", "b"}, 20'021},
                    Case{{"a", "a", "b", "b"}, 100'003, "shm"},
                    Case{{"a", "b", "c", "a", "b", "c"}, 5003, "shm"}));

/// Hosts of the ranks, and sizes: two by two, in small and in many rounds; hosts of unequal size;
/// and one rank a host, whose numbers travel as they are.
class AveragesBetweenHosts
    : public testing::TestWithParam<std::tuple<std::vector<std::string>, size_t>> {};

TEST_P(AveragesBetweenHosts, AreThereWhereTheirSumsAreNot) {
  const auto& [hosts, count] = GetParam();
  const Tuning tuning{.buffer_bytes = 4096, .network_buffer_bytes = 4096, .small_bytes = 64};
  const int ranks = static_cast<int>(hosts.size());

  // All calls that average, on what all ranks have alike: so much is the average, too.
  const auto check = [&]<typename T>(Communicator& group, ElementType type, T value) {
    CallSignature call = call_of(count, type);
    call.op = ReduceOp::kAverage;
    const std::vector<T> mine(count, value);
    const auto expect = [&](const std::vector<T>& found, const char* what) {
      if (found != mine) throw InternalError("{} of {}", what, name(type));
    };
    std::vector<T> data = mine;
    group.all_reduce(call, bytes_of(data), bytes_of(data), a_limit());
    expect(data, "all_reduce");
    for (int root = 0; root < ranks; ++root) {
      group.reduce(call, root, bytes_of(mine), bytes_of(data), a_limit());
      expect(data, "reduce");
    }
    std::vector<T> chunk(count);
    const std::vector<ConstBytes> inputs(hosts.size(), bytes_of(mine));
    group.reduce_scatter(call, inputs, bytes_of(chunk), a_limit());
    expect(chunk, "reduce_scatter");
  };
  const auto errors = run_hosts(hosts, tuning, [&](Communicator& group) {
    for (const int bits : {0x7bff, 0xfbff, 0x3c00, 1}) {  // 65504, -65504, 1, 2^-24
      check(group, ElementType::kFloat16, static_cast<uint16_t>(bits));
    }
    check(group, ElementType::kInt8, int8_t{-128});
    check(group, ElementType::kUint8, uint8_t{255});
    check(group, ElementType::kInt16, int16_t{32767});
    check(group, ElementType::kInt32, std::numeric_limits<int32_t>::max());
    check(group, ElementType::kInt64, std::numeric_limits<int64_t>::min());
    check(group, ElementType::kFloat32, 1.0F);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

INSTANTIATE_TEST_SUITE_P(
    Groups, AveragesBetweenHosts,
    testing::Values(std::tuple{std::vector<std::string>{"a", "a", "b", "b"}, 16},
                    std::tuple{std::vector<std::string>{"a", "a", "b", "b"}, 9001},
                    std::tuple{std::vector<std::string>{"a", "b", "b", "a"}, 131},
                    std::tuple{std::vector<std::string>{"a", "b", "b"}, 2003},
                    std::tuple{std::vector<std::string>{"a", "b", "c"}, 2003}));

TEST(BetweenTwoHosts, SizesThatDifferAreAnErrorOnEveryRankThatNamesRanksAndShapes) {
  const auto errors = run_hosts({"a", "a", "b", "b"}, kSmallSlots, [&](Communicator& group) {
    std::vector<float> data(group.rank() == 3 ? 30 : 40);
    group.all_reduce(call_of(data.size()), bytes_of(data), bytes_of(data), a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("rank(s) 3 called all_reduce #0 of float32 [30], sum")));
  EXPECT_THAT(errors, Each(HasSubstr("rank(s) 0, 1, 2 called all_reduce #0 of float32 [40], sum")));
}

TEST(BetweenTwoHosts, ARankThatDoesNotComeIsNamedOnAllHosts) {
  std::latch given_up(3);

  const auto errors = run_hosts({"a", "a", "b", "b"}, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 3) {
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

  EXPECT_THAT(errors, Each(HasSubstr("waited 2000 ms for rank(s) 3, which did not take part")));
}

TEST(BetweenTwoHosts, ARankThatLeavesIsNamed) {
  const auto errors = run_hosts({"a", "b"}, kSmallSlots, [&](Communicator& group) {
    if (group.rank() != 1) group.barrier(a_limit());
  });

  EXPECT_THAT(errors[0], HasSubstr("rank 1 (at 127.0.0.1) has left the group"));
  EXPECT_THAT(errors[1], IsEmpty());
}

/// A rank that waits for no collective asks what became of another: of the host's first, of one
/// that has another place on its host, and of one without a rail.
TEST(BetweenTwoHosts, EveryRankKnowsOfEachThatHasLeft) {
  using transport::Presence;
  for (const int leaver : {0, 1, 2, 3, 4}) {
    std::latch known(4);
    const auto errors = run_hosts({"a", "a", "b", "b", "b"}, kSmallSlots, [&](Communicator& group) {
      group.barrier(a_limit());
      if (group.rank() == leaver) return;  // and leaves
      const auto until = Clock::now() + std::chrono::seconds(20);
      while (group.presence(leaver) == Presence::kHere && Clock::now() < until) {
        std::this_thread::yield();
      }
      EXPECT_EQ(group.presence(leaver), Presence::kLeft) << group.rank() << " of " << leaver;
      known.arrive_and_wait();  // a rank that leaves is not to disturb the others
    });
    EXPECT_THAT(errors, Each(IsEmpty()));
  }
}

TEST(BetweenTwoHosts, WhatALookThrowsEndsTheCallOnBothHosts) {
  struct Interrupted {};
  std::latch interrupted(1);

  const auto errors = run_hosts({"a", "b"}, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 1) {
      interrupted.wait();
      group.barrier(a_limit());  // may still go well: rank 0 had begun it
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

TEST(BetweenTwoHosts, AbortEndsWaitsEverywhereWithItsReason) {
  const auto errors = run_hosts({"a", "b"}, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 0) group.abort("enough");
    group.barrier(a_limit());
    group.barrier(a_limit());
  });

  EXPECT_THAT(errors, Each(HasSubstr("enough")));
}

TEST(BetweenTwoHosts, AProviderThatIsNotThereIsNamed) {
  transport::StoreOfThreads store;
  const transport::FabricSettings settings{.provider = "efa"};

  try {
    const transport::FabricEndpoint endpoint(settings);
    GTEST_SKIP() << "this machine has EFA";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("offers no provider \"efa\""));
    EXPECT_THAT(error.what(), testing::ContainsRegex("fi_getinfo finds: .*tcp"));
    EXPECT_THAT(error.what(), HasSubstr("is an EFA device attached to this host"));
  }
}

/// More hosts than send their mailboxes to each other, each of one rank, but for the first.
std::vector<std::string> many_hosts() {
  std::vector<std::string> hosts = {"0"};
  for (int host = 0; host < kMostDirect + 3; ++host) hosts.push_back(std::to_string(host));
  return hosts;
}

TEST(BetweenManyHosts, WhatGoesWithTheMailboxesIsHandedOn) {
  const std::vector<std::string> hosts = many_hosts();
  constexpr size_t kSmall = 16;
  constexpr size_t kLarge = 1000;
  const std::vector<float> small = expected_sum(hosts, kSmall, true);
  const std::vector<float> large = expected_sum(hosts, kLarge, false);
  const Tuning tuning{.buffer_bytes = 4096, .network_buffer_bytes = 4096, .small_bytes = 64};

  const auto errors = run_hosts(hosts, tuning, [&](Communicator& group) {
    for (int turn = 0; turn < 3; ++turn) {
      for (const std::vector<float>& expected : {small, large}) {
        std::vector<float> data = values_of(group.rank(), expected.size());
        group.all_reduce(call_of(data.size()), bytes_of(data), bytes_of(data), a_limit());
        if (data != expected) throw InternalError("{} values", data.size());
      }
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

/// Most hosts wait for one that itself waits for it.
TEST(BetweenManyHosts, TheOneThatDoesNotComeIsNamed) {
  const std::vector<std::string> hosts = many_hosts();
  std::latch given_up(static_cast<ptrdiff_t>(hosts.size()) - 1);

  const auto errors = run_hosts(hosts, kSmallSlots, [&](Communicator& group) {
    if (group.rank() == 7) {
      given_up.wait();
      return group.barrier(a_limit());
    }
    try {
      group.barrier(a_limit(std::chrono::milliseconds(200)));
    } catch (const HostError&) {
      given_up.count_down();
      throw;
    }
  });

  EXPECT_THAT(errors, Each(HasSubstr("rank 7")));
}

/// Memory of this process alone and shared.
double resident_mib() {
  std::ifstream status("/proc/self/status");
  double kib = 0;
  for (std::string word; status >> word;) {
    double value = 0;
    if ((word == "RssAnon:" || word == "RssShmem:") && status >> value) kib += value;
  }
  return kib / 1024;
}

TEST(BetweenHosts, AGroupTakesAFewMebibytesOfEachRank) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps memory of its own";
#endif
  ASSERT_TRUE(kAsUsers);
  const auto add_up = [](Communicator& group) {
    std::vector<float> data(100'000, 1);
    group.all_reduce(call_of(data.size()), bytes_of(data), bytes_of(data), a_limit());
    if (data.back() != 2) throw InternalError("{}", data.back());
  };
  ASSERT_THAT(run_hosts({"a", "b"}, {}, add_up), Each(IsEmpty()));  // costs that are paid once
  constexpr int kGroups = 3;
  constexpr int kRanks = 2 * kGroups;
  std::barrier all_are_used(kRanks);
  std::barrier is_measured(kRanks);
  std::array<double, kRanks> seen{};
  std::atomic<size_t> place = 0;
  const double before = resident_mib();

  std::vector<std::thread> threads;
  for (int group = 0; group < kGroups; ++group) {
    threads.emplace_back([&] {
      run_hosts({"a", "b"}, {}, [&](Communicator& communicator) {
        add_up(communicator);
        all_are_used.arrive_and_wait();
        seen[place.fetch_add(1)] = resident_mib() - before;
        is_measured.arrive_and_wait();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_LT(seen.front() / kRanks, 8);
}

}  // namespace
}  // namespace smp::collectives
