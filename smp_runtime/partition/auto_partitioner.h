// SPDX-License-Identifier: Apache-2.0
// The default partitioner: several methods, and of their answers the one with the shortest step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp_runtime/partition/assignment.h"
#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/partition/cost_model.h"

namespace smp::partition {

struct AutoOptions {
  double memory_weight = 0.8;
  int state_factor = 1;             ///< MemoryModel::state_factor
  std::int64_t capacity_bytes = 0;  ///< what one device can hold; 0: not known
  StepModel step;

  /// That of a device which is as full as any can be.
  [[nodiscard]] MemoryModel memory() const;
};

/// One method's proposal.
struct Proposal {
  std::string method;
  std::vector<int> device_of_node;
  Cost worst_load = 0;           ///< heaviest device, as `own_costs` mixes memory and time
  std::int64_t worst_bytes = 0;  ///< fullest device: state and the activations that it holds
  int used_devices = 0;
  std::int64_t predicted_step_ns = 0;
  double predicted_use = 0;     ///< mean share of the step in which a device works
  double predicted_memory = 0;  ///< Simulation::memory of the fullest device; 0: not bounded
  std::int64_t messages = 0;    ///< between devices, in one microbatch's forward
  std::int64_t sent_bytes = 0;  ///< of one microbatch, there and back
};

struct AutoDecision {
  Assignment assignment;
  Proposal chosen;
  Cost contiguous_load = 0;  ///< the least worst_load of a contiguous partition of the units
  bool fits = true;          ///< false: nothing fits capacity_bytes; the smallest found was taken
  int proposals = 0;         ///< how many different ones there were

  /// chosen.worst_load / contiguous_load; below 1 where devices hold several intervals.
  [[nodiscard]] double optimality_gap() const;

  /// One line for the log: the method, the step that it predicts, what ranks send each other.
  [[nodiscard]] std::string summary() const;
};

/// Proposals come from: the exact contiguous optimum by load; by time with what crosses the cuts;
/// by time within a memory cap, where on the front memory_weight says; by load over an order that
/// narrows the cuts of branching models; local refinement of the best of these, whose devices may
/// hold several intervals; and the published algorithm, with containers dissolved and kept. Taken
/// is the shortest predicted step among those that use every device (every unit, if there are
/// fewer), fit `capacity_bytes`, and load no device with more than 105 % of
/// contiguous_load. The first unit, and with it the root, is on partition 0. Depends on the
/// arguments only.
AutoDecision assign_auto(const ModuleTree& tree, int partitions, const AutoOptions& options);

inline constexpr int kLoadSlackPercent = 105;

}  // namespace smp::partition
