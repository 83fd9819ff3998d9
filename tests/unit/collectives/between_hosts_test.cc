// SPDX-License-Identifier: Apache-2.0
// Collectives of groups over several hosts, in one process: libfabric over the loopback, and over
// shared memory, whose provider knows no IP.
#include <algorithm>
#include <latch>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/collectives/rank_threads.h"

/// LeakSanitizer asks for it. libfabric 1.17 loses what it knew of a connection that its other end
/// closes while it is made, as these tests do in some runs.
extern "C" const char* __lsan_default_suppressions() { return "leak:libfabric.so\n"; }

namespace smp::collectives {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;

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
      group.barrier(a_limit(std::chrono::milliseconds(100)));
    } catch (const HostError&) {
      given_up.count_down();
      throw;
    }
  });

  EXPECT_THAT(errors, Each(HasSubstr("waited 100 ms for rank(s) 3, which did not take part")));
}

TEST(BetweenTwoHosts, ARankThatLeavesIsNamed) {
  const auto errors = run_hosts({"a", "b"}, kSmallSlots, [&](Communicator& group) {
    if (group.rank() != 1) group.barrier(a_limit());
  });

  EXPECT_THAT(errors[0], HasSubstr("rank 1 (at 127.0.0.1) has left the group"));
  EXPECT_THAT(errors[1], IsEmpty());
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

}  // namespace
}  // namespace smp::collectives
