// SPDX-License-Identifier: Apache-2.0
// Ranks as threads, tensors of the CPU as if they were on GPUs, NCCL as the fake one.
#include "smp_runtime/smddp/backend/gpu_group.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/backend/byte_view.h"
#include "tests/unit/smddp/collectives/rank_threads.h"
#include "tests/unit/transport/fake_nccl.h"

namespace smp::smddp {
namespace {

using collectives::a_limit;
using collectives::Collective;
using collectives::Communicator;
using collectives::GpuRoute;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using transport::StoreOfThreads;
using Hosts = std::vector<std::string>;

const c10::Device kDevice(at::kCPU);
const c10::Stream kStream(c10::Stream::DEFAULT, kDevice);

struct World {
  StoreOfThreads store;
  std::map<int, StoreOfThreads> rails;
  std::mutex mutex;  // guards rails
  transport::FakeNetwork network;
};

/// Runs `body` as one rank for each of `hosts`; what each threw.
std::vector<std::string> run(World& world, const Hosts& hosts, std::optional<GpuRoute> only,
                             const std::function<void(Communicator&, GpuGroup&)>& body,
                             bool one_gpu = false) {
  std::vector<int> names(hosts.size());
  std::iota(names.begin(), names.end(), 0);
  std::vector<std::string> errors(hosts.size());
  std::vector<std::thread> threads;
  const transport::Network network{.fabric = {.provider = "tcp"}, .interface = "lo"};
  for (const int rank : names) {
    threads.emplace_back([&, rank] {
      const std::string& host = hosts[static_cast<size_t>(rank)];
      try {
        Communicator group(world.store, rank, names, host, {}, network, a_limit());
        const auto rail = [&](const std::vector<int>& ranks, int me) {
          StoreOfThreads* store = nullptr;
          {
            const std::lock_guard lock(world.mutex);
            store = &world.rails[ranks.front()];
          }
          return std::make_unique<Communicator>(*store, me, ranks, host, collectives::Tuning{},
                                                network, a_limit());
        };
        {
          GpuGroup gpus(group, std::make_unique<transport::FakeNccl>(world.network),
                        {.device = kDevice,
                         .host = host,
                         .gpu = one_gpu ? "the one" : std::to_string(rank),
                         .nccl = 22809},
                        {.only = only, .nccl_has_plugin = true}, rail, a_limit());
          body(group, gpus);
        }
        group.leave(a_limit());
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

/// Small integers: exact in every order.
at::Tensor values(int rank, int64_t count) {
  return at::arange(count, at::kFloat).remainder(7).add_(rank);
}

class SumsOfGpus : public testing::TestWithParam<std::tuple<Hosts, GpuRoute, int64_t>> {};

TEST_P(SumsOfGpus, AreThoseOfAllRanks) {
  const auto& [hosts, route, count] = GetParam();
  const int ranks = static_cast<int>(hosts.size());
  at::Tensor expected = values(0, count);
  for (int rank = 1; rank < ranks; ++rank) expected.add_(values(rank, count));
  World world;

  const auto errors = run(world, hosts, route, [&](Communicator& group, GpuGroup& gpus) {
    for (const auto op : {ReduceOp::kSum, ReduceOp::kAverage}) {
      const at::Tensor tensor = values(group.rank(), count);
      collectives::CallSignature call = header_of(tensor);
      call.op = op;
      ASSERT_EQ(gpus.route(call, Collective::kAllReduce, at::kFloat), route);

      gpus.all_reduce(route, call, tensor, kStream, a_limit());

      const bool average = op == ReduceOp::kAverage;
      EXPECT_TRUE(tensor.equal(average ? expected.div(ranks) : expected));
    }
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
  EXPECT_EQ(world.network.open, 0);
}

// Counts that do and do not divide by the ranks of a host.
INSTANTIATE_TEST_SUITE_P(
    Shapes, SumsOfGpus,
    testing::Values(std::tuple{Hosts{"a", "a"}, GpuRoute::kNccl, 1000},
                    std::tuple{Hosts{"a", "b", "a", "b"}, GpuRoute::kNccl, 1001},
                    std::tuple{Hosts{"a", "a", "b", "b"}, GpuRoute::kNcclInside, 1001},
                    std::tuple{Hosts{"a", "b", "a", "b"}, GpuRoute::kNcclInside, 50'001},
                    std::tuple{Hosts{"a", "a", "a", "b", "b", "b"}, GpuRoute::kNcclInside, 2},
                    std::tuple{Hosts{"a", "a", "b", "b", "c", "c"}, GpuRoute::kNcclInside, 64}));

TEST(GpuGroup, AnAverageOfHalvesIsThereWhereTheirSumIsNot) {
  World world;
  const auto errors = run(
      world, {"a", "a", "b", "b"}, GpuRoute::kNcclInside, [](Communicator& group, GpuGroup& gpus) {
        const at::Tensor tensor = values(group.rank(), 1001).add_(40'000).to(at::kHalf);
        collectives::CallSignature call = header_of(tensor);
        call.op = ReduceOp::kAverage;

        gpus.all_reduce(GpuRoute::kNcclInside, call, tensor, kStream, a_limit());

        at::Tensor sum = at::zeros({1001}, at::kFloat);
        for (int rank = 0; rank < 4; ++rank) {
          sum.add_(values(rank, 1001).add_(40'000).to(at::kHalf).to(at::kFloat));
        }
        EXPECT_TRUE(tensor.equal(sum.div(4).to(at::kHalf)));
      });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GpuGroup, MovesAndScattersByNccl) {
  World world;
  const auto errors =
      run(world, {"a", "a", "b"}, GpuRoute::kNccl, [](Communicator& group, GpuGroup& gpus) {
        const int rank = group.rank();
        const at::Tensor part = values(rank, 100);
        const at::Tensor whole = at::empty({3, 100}, at::kFloat);
        gpus.all_gather(header_of(part), part, whole, kStream, a_limit());
        for (int one = 0; one < 3; ++one) EXPECT_TRUE(whole[one].equal(values(one, 100)));

        const at::Tensor sum = at::empty({100}, at::kFloat);
        gpus.reduce_scatter(header_of(sum), whole, sum, kStream, a_limit());
        EXPECT_TRUE(sum.equal(values(rank, 100).mul(3)));

        gpus.broadcast(header_of(part), 2, part, kStream, a_limit());
        EXPECT_TRUE(part.equal(values(2, 100)));
      });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GpuGroup, WhatNcclDoesNotKnowGoesThroughTheHost) {
  World world;
  const auto errors = run(world, {"a", "a"}, GpuRoute::kNccl, [](Communicator&, GpuGroup& gpus) {
    collectives::CallSignature call = header_of(values(0, 1000));
    const auto route = [&](Collective collective, at::ScalarType type) {
      return gpus.route(call, collective, type);
    };
    EXPECT_EQ(route(Collective::kAllReduce, at::kFloat), GpuRoute::kNccl);
    EXPECT_EQ(route(Collective::kAllReduce, at::kShort), GpuRoute::kCpu);
    EXPECT_EQ(route(Collective::kAllReduce, at::kComplexFloat), GpuRoute::kCpu);
    EXPECT_EQ(route(Collective::kAllGather, at::kComplexFloat), GpuRoute::kNccl) << "only moved";
    call.op = ReduceOp::kBitAnd;
    EXPECT_EQ(route(Collective::kAllReduce, at::kInt), GpuRoute::kCpu);
    call.op = ReduceOp::kAverage;
    EXPECT_EQ(route(Collective::kAllReduce, at::kInt), GpuRoute::kCpu);
    call.elements = 0;
    EXPECT_EQ(route(Collective::kBroadcast, at::kFloat), GpuRoute::kCpu);
  });

  EXPECT_THAT(errors, Each(IsEmpty()));
}

TEST(GpuGroup, RanksThatShareAGpuDoWithoutNccl) {
  World world;
  const auto body = [](Communicator&, GpuGroup& gpus) {
    EXPECT_EQ(gpus.route(header_of(values(0, 1 << 20)), Collective::kAllReduce, at::kFloat),
              GpuRoute::kCpu);
  };

  EXPECT_THAT(run(world, {"a", "a"}, std::nullopt, body, true), Each(IsEmpty()));
  EXPECT_EQ(world.network.next_id, 0);
  World other;
  EXPECT_THAT(run(other, {"a", "a"}, GpuRoute::kNccl, body, true),
              Each(HasSubstr("ranks 0 and 1: they share the GPU the one")));
}

/// Output of ranks on these GPUs.
std::string said_on(bool one_gpu, std::optional<GpuRoute> only) {
  World world;
  testing::internal::CaptureStderr();
  const auto errors = run(
      world, {"a", "a", "a"}, only, [](Communicator&, GpuGroup&) {}, one_gpu);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(errors, Each(IsEmpty()));
  return said;
}

TEST(GpuGroup, RanksThatShareAGpuAreToldSoOnce) {
  const std::string said = said_on(true, std::nullopt);

  EXPECT_THAT(said, HasSubstr("ranks 0 and 1 both compute on the GPU the one"));
  EXPECT_THAT(said,
              HasSubstr("give each rank a GPU of its own (in Python by torch.cuda.set_device"));
  EXPECT_EQ(said.find("both compute"), said.rfind("both compute"));
}

TEST(GpuGroup, WhoAskedForTheHostOrHasAGpuOfHisOwnIsNotWarned) {
  EXPECT_THAT(said_on(true, GpuRoute::kCpu), Not(HasSubstr("both compute")));
  EXPECT_THAT(said_on(false, std::nullopt), Not(HasSubstr("both compute")));
}

TEST(GpuGroup, OtherSizesAreAnErrorBeforeNcclGetsThem) {
  World world;
  const auto errors =
      run(world, {"a", "a"}, GpuRoute::kNccl, [&](Communicator& group, GpuGroup& gpus) {
        const at::Tensor tensor = values(0, 100 + group.rank());
        gpus.all_reduce(GpuRoute::kNccl, header_of(tensor), tensor, kStream, a_limit());
      });

  EXPECT_THAT(errors, Each(HasSubstr("rank(s) 1 called all_reduce")));
  EXPECT_EQ(world.network.launched(), 0U);
}

TEST(GpuGroup, AFailureOfNcclReachesAllRanks) {
  World world;
  const auto errors =
      run(world, {"a", "a"}, GpuRoute::kNccl, [&](Communicator& group, GpuGroup& gpus) {
        const at::Tensor tensor = values(0, 100);
        // One rank's NCCL gets no half of the other: as if the other's GPU had stopped.
        if (group.rank() == 0) {
          collectives::CallSignature call = header_of(tensor);
          gpus.all_reduce(GpuRoute::kNccl, call, tensor, kStream, a_limit(std::chrono::seconds(1)));
        } else {
          collectives::CallSignature call = header_of(tensor);
          call.route = static_cast<uint8_t>(GpuRoute::kNccl);
          group.agree(call, Collective::kAllReduce, a_limit());
          group.barrier(a_limit());
        }
      });

  EXPECT_THAT(errors, Each(HasSubstr("is not done after 1000 ms")));
  EXPECT_EQ(world.network.open, 0) << "nothing stays on a device";
}

}  // namespace
}  // namespace smp::smddp
