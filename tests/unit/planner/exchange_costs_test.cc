// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/exchange_costs.h"

#include <gtest/gtest.h>

namespace smp::planner {
namespace {

constexpr double kGigabyte = 1e9;

/// 10 GB/s between ranks of a host, 1 GB/s between hosts, nothing for latency.
Machines two_hosts_of_four() {
  return {.hosts = 2,
          .ranks_a_host = 4,
          .inside = {.bytes_per_second = 10 * kGigabyte},
          .between = {.bytes_per_second = kGigabyte}};
}

topology::Mesh mesh_of(const Machines& machines, std::int64_t pp, const char* placement) {
  topology::ParallelConfig config{.pipeline_parallel_degree = pp, .placement_strategy = placement};
  return topology::Mesh::make(config, machines.ranks());
}

TEST(ExchangeCosts, AGatherInAHostMovesWhatOthersHave) {
  const Machines machines = two_hosts_of_four();

  const double seconds = gather_seconds(machines, {.ranks = 4}, 4 * kGigabyte, true);

  EXPECT_DOUBLE_EQ(seconds, 0.3);  // 3 of 4 GB at 10 GB/s
}

TEST(ExchangeCosts, BetweenHostsEachByteCrossesOnceOrInARingOfRanks) {
  const Machines machines = two_hosts_of_four();
  const Spread spread{.ranks = 8, .hosts = 2};

  EXPECT_DOUBLE_EQ(gather_seconds(machines, spread, kGigabyte, true), 0.5);
  EXPECT_DOUBLE_EQ(gather_seconds(machines, spread, kGigabyte, false), 0.875);
  EXPECT_DOUBLE_EQ(all_reduce_seconds(machines, spread, kGigabyte, true), 1.0);
}

TEST(ExchangeCosts, GroupsOfAHostShareItsInterface) {
  const Machines machines = two_hosts_of_four();

  const Spread spread = spread_of(mesh_of(machines, 4, "cluster"), topology::Group::kRdp, machines);

  EXPECT_EQ(spread.ranks, 2);
  EXPECT_EQ(spread.hosts, 2);
  EXPECT_EQ(spread.groups_a_host, 4);
  EXPECT_DOUBLE_EQ(gather_seconds(machines, spread, kGigabyte, true), 2.0);
}

TEST(ExchangeCosts, PlacementSaysWhichStagesAreNeighbours) {
  const Machines machines = two_hosts_of_four();

  const auto near = pipeline_model(mesh_of(machines, 4, "cluster"), machines, {});
  const auto far = pipeline_model(mesh_of(machines, 2, "spread"), machines, {});

  EXPECT_EQ(near.host_of_device, (std::vector<int>{0, 0, 0, 0}));
  EXPECT_EQ(far.host_of_device, (std::vector<int>{0, 1}));
  EXPECT_EQ(far.between_hosts.bytes_per_us, 250);  // four pipelines cross
}

TEST(ExchangeCosts, TheSlowestLinkHasAllMessagesOfOneDirection) {
  const partition::CallProgram program{
      .runs = {{.device = 0}, {.device = 1, .messages = 1, .bytes = 1'000'000}}};
  const partition::StepModel model{.link = {.latency_ns = 1000, .bytes_per_us = 1000}};

  EXPECT_DOUBLE_EQ(slowest_link_seconds(program, model), 1e-3 + 1e-6);
}

}  // namespace
}  // namespace smp::planner
