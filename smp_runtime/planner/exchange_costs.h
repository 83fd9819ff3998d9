// SPDX-License-Identifier: Apache-2.0
// Times of what ranks hand each other, by where they are: the bytes that an exchange must move over
// the slowest link that it uses, and its steps' latencies.
#pragma once

#include <cstdint>

#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/planner/machines.h"
#include "smp_runtime/topology/mesh.h"

namespace smp::planner {

/// Where the ranks of a group are: those of rank 0, whose like all others are.
struct Spread {
  int ranks = 1;
  int hosts = 1;
  int groups_a_host = 1;  ///< of this kind, which share the host's interface

  [[nodiscard]] int ranks_a_host() const { return (ranks + hosts - 1) / hosts; }
};

Spread spread_of(const topology::Mesh& mesh, topology::Group group, const Machines& machines);

/// The first `degree` ranks of a group: those that shard a copy of the model together.
Spread shard_spread_of(const topology::Mesh& mesh, int degree, const Machines& machines);

/// Seconds in which each rank of the group has all of `bytes`, of which each had an equal part; and
/// likewise of their sum over ranks each rank its part. By hosts first where `by_hosts`: then each
/// byte crosses between hosts once; else in one ring of all ranks. The bytes go in `exchanges` of
/// them, one after the other, each of which has the latencies of all its steps.
double gather_seconds(const Machines& machines, const Spread& spread, double bytes, bool by_hosts,
                      double exchanges = 1);

/// Sums over ranks of `bytes`, on each of them: a reduction in parts, and a gather.
double all_reduce_seconds(const Machines& machines, const Spread& spread, double bytes,
                          bool by_hosts);

/// Links of messages between the stages of a pipeline, where its ranks are.
partition::StepModel pipeline_model(const topology::Mesh& mesh, const Machines& machines,
                                    const schedule::ScheduleShape& shape);

/// Seconds in which the messages of a microbatch pass the slowest link, one way: a step cannot be
/// faster than all its microbatches' together.
double slowest_link_seconds(const partition::CallProgram& program,
                            const partition::StepModel& model);

}  // namespace smp::planner
