// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/exchange_costs.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace smp::planner {
namespace {

Spread spread_over(std::span<const int> ranks, const Machines& machines) {
  std::set<int> hosts;
  for (const int rank : ranks) hosts.insert(rank / machines.ranks_a_host);
  const int count = static_cast<int>(ranks.size());
  Spread spread{.ranks = count, .hosts = static_cast<int>(hosts.size())};
  spread.groups_a_host = std::max(1, machines.ranks_a_host / spread.ranks_a_host());
  return spread;
}

/// Ranks of a host that move bytes at the same time share its processors, where these are fewer.
double slowdown(const Machines& machines) {
  if (machines.processors == 0) return 1;
  return std::max(1.0, static_cast<double>(machines.ranks_a_host) / machines.processors);
}

double inside_seconds(const Machines& machines, int ranks, double bytes, double exchanges) {
  if (ranks < 2) return 0;
  const double share = static_cast<double>(ranks - 1) / ranks;
  return share * bytes / machines.inside.bytes_per_second * slowdown(machines) +
         exchanges * (ranks - 1) * machines.inside.latency_seconds;
}

partition::LinkCost link_cost(const Link& link, int sharing) {
  const double rate = std::max(link.bytes_per_second, 1e6) / sharing;
  return {.latency_ns = std::llround(link.latency_seconds * 1e9),
          .bytes_per_us = std::max<std::int64_t>(1, std::llround(rate * 1e-6))};
}

}  // namespace

Spread spread_of(const topology::Mesh& mesh, topology::Group group, const Machines& machines) {
  return spread_over(mesh.group(group, 0), machines);
}

Spread shard_spread_of(const topology::Mesh& mesh, int degree, const Machines& machines) {
  const std::vector<int> ranks = mesh.group(topology::Group::kRdp, 0);
  return spread_over(std::span(ranks).first(static_cast<std::size_t>(degree)), machines);
}

double gather_seconds(const Machines& machines, const Spread& spread, double bytes, bool by_hosts,
                      double exchanges) {
  if (spread.ranks < 2) return 0;
  if (spread.hosts < 2) {
    return inside_seconds(machines, spread.ranks, bytes, exchanges);
  }
  const int ring = by_hosts ? spread.hosts : spread.ranks;
  const double crossing =
      bytes * (ring - 1) / ring * spread.groups_a_host / machines.between.bytes_per_second +
      exchanges * (ring - 1) * machines.between.latency_seconds;
  // Inside of the host goes what came, too; beside it, but for the last piece.
  return std::max(crossing, inside_seconds(machines, spread.ranks_a_host(), bytes, exchanges));
}

double all_reduce_seconds(const Machines& machines, const Spread& spread, double bytes,
                          bool by_hosts) {
  return 2 * gather_seconds(machines, spread, bytes, by_hosts);
}

partition::StepModel pipeline_model(const topology::Mesh& mesh, const Machines& machines,
                                    const schedule::ScheduleShape& shape) {
  partition::StepModel model{.shape = shape, .link = link_cost(machines.inside, 1)};
  const std::vector<int> ranks = mesh.group(topology::Group::kPp, 0);
  for (const int rank : ranks) model.host_of_device.push_back(rank / machines.ranks_a_host);
  if (machines.hosts == 1) return model;
  // Pipelines that cross between the same two hosts share their interfaces.
  const int stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  model.between_hosts = link_cost(machines.between, std::min(stride, machines.ranks_a_host));
  return model;
}

double slowest_link_seconds(const partition::CallProgram& program,
                            const partition::StepModel& model) {
  std::map<std::pair<int, int>, std::int64_t> busy;
  std::int64_t slowest = 0;
  for (std::size_t number = 1; number < program.runs.size(); ++number) {
    const partition::Run& before = program.runs[number - 1];
    const partition::Run& run = program.runs[number];
    const std::int64_t took = partition::message_ns(before, run, model);
    // The backward's go the other way.
    for (const auto& way :
         {std::pair(before.device, run.device), std::pair(run.device, before.device)}) {
      slowest = std::max(slowest, busy[way] += took);
    }
  }
  return static_cast<double>(slowest) * 1e-9;
}

}  // namespace smp::planner
