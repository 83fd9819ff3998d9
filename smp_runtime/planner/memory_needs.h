// SPDX-License-Identifier: Apache-2.0
// Memory that the fullest rank needs under a candidate: by the formula of the ledger
// (smp.memory_summary) for state, by the trace for activations.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/partition/module_tree.h"
#include "smp_runtime/planner/candidates.h"
#include "smp_runtime/planner/machines.h"
#include "smp_runtime/planner/model_profile.h"

namespace smp::planner {

/// Bytes of one rank.
struct MemoryNeeds {
  double parameters = 0;  ///< and masters
  double gathered = 0;    ///< parameters of other ranks, for use
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;
  /// Of exchanges, and gradients that wait for them: what comes and goes within a step, of which
  /// smp.memory_summary tells nothing.
  double buffers = 0;

  [[nodiscard]] double state() const { return parameters + gradients + optimizer; }
  [[nodiscard]] double total() const { return state() + gathered + activations + buffers; }
};

/// Of the state of parameters alone; `stage_of` has the pipeline stage of each parameter.
MemoryNeeds state_needs(const ModelProfile& model, const Machines& machines,
                        const Candidate& candidate, const std::vector<int>& stage_of, int stage);

/// Of all stages the fullest one's. `tree` is that of a microbatch, `device_of` the stage of each
/// of its modules.
MemoryNeeds fullest_needs(const ModelProfile& model, const Machines& machines,
                          const Candidate& candidate, const partition::ModuleTree& tree,
                          const std::vector<int>& device_of);

/// No more than the fullest rank needs, however the model is cut: what it is when all stages need
/// the same. O(parameters and modules).
double least_needs(const ModelProfile& model, const Machines& machines, const Candidate& candidate);

/// Bytes that a rank may fill; 0 where its memory is not known.
double usable_bytes(const Machines& machines);

}  // namespace smp::planner
