// SPDX-License-Identifier: Apache-2.0
// The module tree of one microbatch under a candidate: what each module costs a rank that has it.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/planner/candidates.h"
#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/model_profile.h"

namespace smp::planner {

/// Forwards that a backward takes.
inline constexpr double kBackwards = 2;

struct CostTree {
  /// Times are a third of what forward and backward take together: the partitioner counts a
  /// backward as two forwards.
  partition::ModuleTree tree;
  double plain_seconds = 0;  ///< of a microbatch and all modules, without what is recomputed
  /// Tensors that tensor ranks hand each other in a microbatch, forward; whole, of the group.
  double exchanged_bytes = 0;
  std::int64_t exchanges = 0;
};

CostTree make_cost_tree(const ModelProfile& model, const Machines& machines,
                        const Candidate& candidate);

/// Seconds of a microbatch: forward, backward and recompute, of all modules.
double microbatch_seconds(const ModelProfile& model, const Machines& machines,
                          const Candidate& candidate);

/// Bytes of an activation under the candidate for each byte in the trace.
double activation_share(const ModelProfile& model, const Candidate& candidate);

/// Samples that a tensor rank's part of a split module works on, for each of the rank's own batch,
/// times the share of the module that it has.
double split_share(const Candidate& candidate);

}  // namespace smp::planner
