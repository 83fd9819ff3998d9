// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/gpu_route.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr size_t kKiB = 1024;
constexpr size_t kGiB = size_t{1} << 30;

GpuGroupShape shape(int hosts, int ranks_per_host) {
  return {.hosts = hosts, .ranks_per_host = ranks_per_host};
}

/// Each link as the only one that takes time: what crosses it of a tensor of `size_bytes`.
TEST(GpuRoute, CountsWhatCrossesEachLink) {
  constexpr double kNever = 1e30;
  constexpr GpuRates kFree{.inside = kNever,
                           .copy = kNever,
                           .host_sum = kNever,
                           .network = kNever,
                           .nccl_network = kNever,
                           .nccl_start = 0,
                           .copy_start = 0,
                           .host_start = 0,
                           .network_start = 0};
  struct Row {
    GpuRoute route;
    double inside, copy, host_sum, network, nccl_network;
  };
  // Four hosts of eight: 2 M (N-1)/N leaves a host, 2 M (g-1)/g a GPU, M/g or M a GPU to pinned
  // memory and back.
  const std::vector<Row> rows{{GpuRoute::kCpu, 0, 2, 1, 1.5, 0},
                              {GpuRoute::kNcclInside, 1.75, 0.25, 0, 1.5, 0},
                              {GpuRoute::kNccl, 1.75, 0, 0, 0, 1.5}};
  for (const Row& row : rows) {
    const auto crossing = [&](double GpuRates::*link) {
      GpuRates rates = kFree;
      rates.*link = 1;
      return expected_seconds(row.route, shape(4, 8), rates, 1000) / 1000;
    };
    EXPECT_NEAR(crossing(&GpuRates::inside), row.inside, 1e-9) << name(row.route);
    EXPECT_NEAR(crossing(&GpuRates::copy), row.copy, 1e-9) << name(row.route);
    EXPECT_NEAR(crossing(&GpuRates::host_sum), row.host_sum, 1e-9) << name(row.route);
    EXPECT_NEAR(crossing(&GpuRates::network), row.network, 1e-9) << name(row.route);
    EXPECT_NEAR(crossing(&GpuRates::nccl_network), row.nccl_network, 1e-9) << name(row.route);
  }
}

TEST(GpuRoute, NcclIsBestInsideAHost) {
  const GpuRoutes routes(shape(1, 8), GpuRates());

  for (size_t bytes = 1; bytes <= kGiB; bytes *= 2) EXPECT_EQ(routes.route(bytes), GpuRoute::kNccl);
  EXPECT_THAT(routes.text(), HasSubstr("no nccl-inside: all ranks are on one host"));
}

TEST(GpuRoute, OurFabricTakesLargeSumsWhereNcclHasNone) {
  const GpuRoutes routes(shape(4, 8), rates_for("efa", false));
  const GpuRoutes with_plugin(shape(4, 8), rates_for("efa", true));
  const GpuRoutes over_tcp(shape(4, 8), rates_for("tcp", false));

  EXPECT_EQ(routes.route(64 * kKiB * kKiB), GpuRoute::kNcclInside);
  EXPECT_EQ(routes.route(4 * kGiB), GpuRoute::kNcclInside);
  EXPECT_EQ(with_plugin.route(kGiB), GpuRoute::kNccl);
  EXPECT_EQ(over_tcp.route(kGiB), GpuRoute::kNccl);
}

TEST(GpuRoute, TheChoiceIsTheCheapestAtEveryPowerOfTwo) {
  for (const GpuGroupShape& group : {shape(1, 2), shape(2, 1), shape(2, 8), shape(16, 8)}) {
    for (const bool plugin : {false, true}) {
      const GpuRates rates = rates_for("efa", plugin);
      const GpuRoutes routes(group, rates);
      for (size_t bytes = 4 * kKiB; bytes <= 4 * kGiB; bytes *= 2) {
        const GpuRoute chosen = routes.route(bytes);
        ASSERT_EQ(why_not(chosen, group), "");
        for (const GpuRoute other : {GpuRoute::kCpu, GpuRoute::kNcclInside, GpuRoute::kNccl}) {
          if (!why_not(other, group).empty()) continue;
          EXPECT_LE(expected_seconds(chosen, group, rates, bytes),
                    expected_seconds(other, group, rates, bytes))
              << bytes << " bytes: " << name(chosen) << " or " << name(other);
        }
      }
    }
  }
}

TEST(GpuRoute, WithoutNcclEverythingGoesThroughTheHost) {
  GpuGroupShape group = shape(2, 2);
  group.no_nccl = "ranks 0 and 1 share a GPU";
  const GpuRoutes routes(group, GpuRates());

  EXPECT_EQ(routes.route(1), GpuRoute::kCpu);
  EXPECT_EQ(routes.route(4 * kGiB), GpuRoute::kCpu);
  EXPECT_THAT(routes.text(), HasSubstr("no nccl: ranks 0 and 1 share a GPU"));
}

TEST(GpuRoute, WhatIsAskedForAndImpossibleIsRefused) {
  GpuGroupShape uneven = shape(2, 2);
  uneven.ranks_per_host = 0;
  GpuGroupShape without = shape(2, 2);
  without.no_nccl = "built without GPU code";

  EXPECT_THAT([&] { GpuRoutes(uneven, GpuRoute::kNcclInside); },
              ThrowsMessage<ConfigError>(HasSubstr("different numbers of ranks")));
  EXPECT_THAT([&] { GpuRoutes(shape(1, 8), GpuRoute::kNcclInside); },
              ThrowsMessage<ConfigError>(HasSubstr("on one host")));
  EXPECT_THAT([&] { GpuRoutes(without, GpuRoute::kNccl); },
              ThrowsMessage<ConfigError>(
                  HasSubstr("SMDDP_GPU_ROUTE=nccl is not possible in this group: built without")));
  EXPECT_EQ(GpuRoutes(without, GpuRoute::kCpu).route(kGiB), GpuRoute::kCpu);
}

}  // namespace
}  // namespace smp::collectives
