// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, for collectives of a program's own.
#pragma once

#include <vector>

#include "smp/session.h"
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace smp {

/// Ranks that have something in common.
enum class CommGroup {
  kWorld,  ///< all ranks of the job
  kPp,     ///< the partitions of one replica
  kDp,     ///< the same partition in all replicas
};

/// The ranks of this rank's group, numbers of the job, ascending. No communication.
[[nodiscard]] std::vector<int> ranks_of(const Session& session, CommGroup group);

/// A group of c10d over smddp, for tensors on the CPU and on GPUs; none of the library's own work
/// goes through it. Collective over its ranks when it is first asked for; it ends with the session.
/// What it throws and how long it waits are c10d's and SMP_TIMEOUT_SECONDS.
[[nodiscard]] c10::intrusive_ptr<c10d::ProcessGroup> process_group(Session& session,
                                                                   CommGroup group);

}  // namespace smp
