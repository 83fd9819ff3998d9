// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/sharding/shard_exchange.h"

#include <filesystem>
#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/sharding/gradient_clipping.h"
#include "smp_runtime/sharding/reduce_scatter_buckets.h"
#include "smp_runtime/sharding/shard_groups.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"
#include "tests/unit/session/session_ranks.h"

namespace smp::sharding {
namespace {

using session::Session;
using session::ThreadJob;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A job whose state is shared by `degree` ranks.
ThreadJob sharded_job(int size, int degree) {
  return {.size = size,
          .settings = "ddp=True,sharded_data_parallel_degree=" + std::to_string(degree)};
}

ShardGroups groups_of(Session& session) {
  return make_shard_groups(session, *plan_shards(session.config(), session.mesh())).front();
}

ShardExchange exchange_of(Session& session, const ShardGroups& groups) {
  return ShardExchange({.shards = groups.shards,
                        .control = groups.control,
                        .replicas = groups.replicas,
                        .across_hosts = groups.across_hosts,
                        .within_host = groups.within_host,
                        .watch = session.barriers().watch(),
                        .recorder = session.recorder(),
                        .unit_name = [](int unit) { return "unit " + std::to_string(unit); }});
}

/// Values of a rank, whose sums depend on their order.
at::Tensor values_of(int rank, std::int64_t elements) {
  return at::arange(elements, at::kFloat)
      .mul(1e3)
      .add(rank * 7.0 + 0.1)
      .sin()
      .mul(1e4 / (rank + 1));
}

TEST(ShardExchange, GathersShardsInTheOrderOfRanksToTheBit) {
  constexpr int kRanks = 3;
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kLong}) {
    for (const std::int64_t shard : {1, 5, 40'000}) {
      std::vector<at::Tensor> parts;
      for (int rank = 0; rank < kRanks; ++rank) parts.push_back(values_of(rank, shard).to(type));

      const auto errors = sharded_job(kRanks, kRanks).in_sessions([&](Session& session) {
        const ShardGroups groups = groups_of(session);
        ShardExchange exchange = exchange_of(session, groups);
        const at::Tensor full = at::zeros({kRanks * shard}, type);
        const at::Tensor own = full.narrow(0, groups.index * shard, shard);
        own.copy_(parts[static_cast<std::size_t>(groups.index)]);
        auto pending = exchange.start_gather(0, full, own);
        exchange.wait(pending);
        EXPECT_TRUE(at::equal(full, at::cat(parts))) << type << ' ' << shard;
      });
      EXPECT_THAT(errors, Each(IsEmpty()));
    }
  }
}

TEST(ShardExchange, AddsUpInTheOrderOfRanksToTheBit) {
  constexpr int kRanks = 3;
  constexpr std::int64_t kShard = 1001;
  at::Tensor sum = values_of(0, kRanks * kShard);
  for (int rank = 1; rank < kRanks; ++rank) sum = sum + values_of(rank, kRanks * kShard);

  const auto errors = sharded_job(kRanks, kRanks).in_sessions([&](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    const std::vector<int> units{0, 1};
    const at::Tensor own = values_of(groups.index, kRanks * kShard).view({kRanks, kShard});
    auto pending = exchange.start_reduce(units, own, at::kFloat);
    EXPECT_TRUE(at::equal(exchange.wait(pending), sum.view({kRanks, kShard})[groups.index]));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, AddsUpNarrowGradientsInTheWideType) {
  // Each is a bfloat16; the sum of three, 2^8 + 2^-6 + 2^-7, is none, and would be 2^8.
  const std::array<double, 3> values{256.0, 0.015625, 0.0078125};

  const auto errors = sharded_job(3, 3).in_sessions([&](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    const double mine = values[static_cast<std::size_t>(groups.index)];
    const std::vector<int> units{0};
    auto pending = exchange.start_reduce(units, at::full({3, 4}, mine, at::kBFloat16), at::kFloat);
    EXPECT_TRUE(at::equal(exchange.wait(pending), at::full({4}, 256.0234375, at::kFloat)));
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, RanksAtDifferentUnitsNameBoth) {
  const auto errors = sharded_job(2, 2).in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    const at::Tensor full = at::zeros({8});
    auto pending = exchange.start_gather(3 + groups.index, full, full.narrow(0, 0, 4).clone());
    try {
      exchange.wait(pending);
      FAIL() << "the ranks gather different units";
    } catch (const UserCodeError& error) {
      const bool first = groups.index == 0;
      EXPECT_THAT(error.what(),
                  AllOf(HasSubstr(first ? "here it is the turn of gathering unit 3"
                                        : "here it is the turn of gathering unit 4"),
                        HasSubstr(first ? "on rank 1 of the group of gathering unit 4"
                                        : "on rank 0 of the group of gathering unit 3")));
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, RanksWithDifferentKindsOfExchangeNameBoth) {
  const auto errors = sharded_job(2, 2).in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    const std::vector<int> units{5, 6};
    const at::Tensor full = at::zeros({8});
    auto pending = groups.index == 0 ? exchange.start_gather(5, full, full.narrow(0, 0, 4).clone())
                                     : exchange.start_reduce(units, at::zeros({2, 4}), at::kFloat);
    try {
      exchange.wait(pending);
      FAIL() << "one gathers, one reduces";
    } catch (const UserCodeError& error) {
      if (groups.index == 0) {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("turn of gathering unit 5"),
                          HasSubstr("reducing the gradients of unit 5 and of 1 more")));
      } else {
        EXPECT_THAT(error.what(),
                    AllOf(HasSubstr("turn of reducing the gradients of unit 5, unit 6"),
                          HasSubstr("on rank 0 of the group of gathering unit 5")));
      }
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, NamesTheRankThatDoesNotComeAndTheUnit) {
  const auto errors = sharded_job(3, 3).in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    const auto store = session.store();
    if (groups.index == 1) {
      store->wait({"over/0", "over/2"});
      return;
    }
    groups.shards->getBackend(at::kCPU)->setTimeout(std::chrono::milliseconds(300));
    ShardExchange exchange = exchange_of(session, groups);
    const at::Tensor full = at::zeros({12});
    auto pending = exchange.start_gather(7, full, full.narrow(0, 0, 4).clone());
    std::string text;
    try {
      exchange.wait(pending);
    } catch (const HostError& error) {
      text = error.what();
    }
    store->set("over/" + std::to_string(groups.index), std::string());
    EXPECT_THAT(text, HasSubstr("gathering unit 7"));
    if (groups.index == 0) {
      EXPECT_THAT(text, HasSubstr("rank(s) 1"));
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, AddsUpOverReplicasAndCountsByRingArithmetic) {
  const auto errors = sharded_job(4, 2).in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    ASSERT_EQ(exchange.degree(), 2);
    ASSERT_EQ(exchange.replicas(), 2);
    const int rank = session.ranks().rank;
    const at::Tensor tensor = values_of(rank, 100);
    auto sum = exchange.start_sum(tensor);
    exchange.wait(sum);
    EXPECT_TRUE(at::equal(tensor, values_of(rank % 2, 100) + values_of(rank % 2 + 2, 100)));

    const std::vector<int> units{0};
    auto pending = exchange.start_reduce(units, at::zeros({2, 50}), at::kFloat);
    exchange.wait(pending);
    const at::Tensor full = at::zeros({20});
    pending = exchange.start_gather(0, full, full.narrow(0, 0, 10).clone());
    exchange.wait(pending);
    EXPECT_EQ(exchange.traffic().replica_bytes, 400);
    EXPECT_EQ(exchange.traffic().reduced_bytes, 200);
    EXPECT_EQ(exchange.traffic().gathered_bytes, 40);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardExchange, TellsTheRecorderWhatItSends) {
  const testing_support::TemporaryFolder folder;
  const std::filesystem::path records = folder.path() / "records";
  ThreadJob job = sharded_job(2, 2);
  job.variables.emplace("SMP_RECORDS", records.string());

  const auto errors = job.in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    session.recorder()->begin_step();
    const at::Tensor full = at::zeros({20});
    auto pending = exchange.start_gather(0, full, full.narrow(0, 0, 10).clone());
    exchange.wait(pending);
    session.recorder()->end_step();
    session.recorder()->close();
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_THAT(read_text(records / "rank-0.jsonl"), HasSubstr(R"({"traffic":[[1,1,40]]})"));
}

TEST(ReduceScatterBuckets, GiveEachUnitItsSumInTheOrderInWhichTheyCame) {
  const auto errors = sharded_job(2, 2).in_sessions([](Session& session) {
    const ShardGroups groups = groups_of(session);
    ShardExchange exchange = exchange_of(session, groups);
    const std::vector<std::int64_t> shards{3, 5, 2};
    std::vector<int> came;
    ReduceScatterBuckets buckets(
        exchange, /*bucket=*/12,
        [&](int unit) {
          return ReduceScatterBuckets::Size{.shard = shards[static_cast<std::size_t>(unit)],
                                            .master = at::kFloat};
        },
        [&](int unit, const at::Tensor& sum) {
          came.push_back(unit);
          const std::int64_t shard = shards[static_cast<std::size_t>(unit)];
          const at::Tensor whole = values_of(unit, 2 * shard) + values_of(unit + 10, 2 * shard);
          EXPECT_TRUE(at::equal(sum, whole.narrow(0, groups.index * shard, shard))) << unit;
        });
    for (const int unit : {2, 0, 1}) {
      buckets.add(unit,
                  values_of(unit + 10 * groups.index, 2 * shards[static_cast<std::size_t>(unit)]));
    }
    EXPECT_FALSE(buckets.idle());
    buckets.flush();
    EXPECT_TRUE(buckets.idle());
    EXPECT_THAT(came, ElementsAre(2, 0, 1));
    EXPECT_EQ(exchange.traffic().reduced_bytes, 4 * 10) << "of each of ten elements one is sent";
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardGroups, AreConsecutiveRanksAndTheirReplicas) {
  const auto errors = sharded_job(4, 2).in_sessions([](Session& session) {
    const int rank = session.ranks().rank;
    const ShardGroups groups = groups_of(session);
    EXPECT_EQ(groups.degree, 2);
    EXPECT_EQ(groups.index, rank % 2);
    EXPECT_EQ(groups.divisor, 4) << "gradients are the mean over all ranks";
    EXPECT_EQ(groups.ranks, rank < 2 ? (std::vector{0, 1}) : (std::vector{2, 3}));
    EXPECT_EQ(groups.replicas->getGroupDesc(), rank % 2 == 0 ? "ranks 0, 2" : "ranks 1, 3");
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(ShardPlan, FollowsTheSettings) {
  const auto plan_of = [](std::string_view settings) {
    const auto config =
        topology::make_parallel_config(topology::parse_settings(settings, "a test"));
    return plan_shards(config, topology::Mesh::make(config, 8));
  };

  EXPECT_EQ(plan_of("ddp=True"), std::nullopt);
  const auto by_degree = plan_of("ddp=True,sharded_data_parallel_degree=4");
  EXPECT_EQ(by_degree->degree, 4);
  EXPECT_TRUE(by_degree->on_demand);
  const auto by_state = plan_of(
      "ddp=True,pipeline_parallel_degree=2,tensor_parallel_degree=2,"
      "shard_optimizer_state=True");
  EXPECT_EQ(by_state->degree, 2) << "of the reduced data-parallel group";
  EXPECT_EQ(by_state->own_degree, 4) << "of the data-parallel group";
  EXPECT_FALSE(by_state->on_demand);
  const auto by_type = plan_of("ddp=True,bf16=True");
  EXPECT_EQ(by_type->degree, 1) << "masters, which nobody shares";
  EXPECT_FALSE(by_type->cuts_parameters());
}

TEST(GradientClipping, TakesTheNormOverAllPartitions) {
  const ThreadJob job{.size = 2, .settings = "pipeline_parallel_degree=2"};

  const auto errors = job.in_sessions([](Session& session) {
    const double own = session.ranks().rank == 0 ? 3.0 : 4.0;
    const at::Tensor gradient = at::full({1}, own);
    const at::Tensor norm =
        clip_gradients(session, "a test", {.slices = {gradient}, .whole = {}}, 2.5, 2.0, at::kCPU);
    EXPECT_DOUBLE_EQ(norm.item<double>(), 5.0);
    EXPECT_NEAR(gradient.item<double>(), own / 2, 1e-5);
    const at::Tensor largest = clip_gradients(
        session, "a test", {.slices = {gradient}, .whole = {}}, 1e9, INFINITY, at::kCPU);
    EXPECT_NEAR(largest.item<double>(), 2.0, 1e-5);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GradientClipping, NoNumberOnOneRankIsNoneOnAll) {
  const ThreadJob job{.size = 2, .settings = "pipeline_parallel_degree=2"};

  const auto errors = job.in_sessions([](Session& session) {
    const at::Tensor gradient = at::full({1}, session.ranks().rank == 0 ? NAN : 1.0);
    for (const double norm_type : {2.0, static_cast<double>(INFINITY)}) {
      const at::Tensor norm = clip_gradients(
          session, "a test", {.slices = {gradient.clone()}, .whole = {}}, 1.0, norm_type, at::kCPU);
      EXPECT_TRUE(std::isnan(norm.item<double>())) << norm_type;
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

}  // namespace
}  // namespace smp::sharding
