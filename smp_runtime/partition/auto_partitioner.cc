// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/partition/auto_partitioner.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "smp_runtime/core/error.h"
#include "smp_runtime/partition/call_program.h"
#include "smp_runtime/partition/proposals.h"
#include "smp_runtime/partition/units.h"

namespace smp::partition {
namespace {

void weigh(const ModuleTree& tree, const std::vector<Cost>& costs, const MemoryModel& memory,
           int partitions, int stages, const schedule::ScheduleShape& shape, Proposal& proposal) {
  std::vector<Cost> load(partitions, 0);
  std::vector<std::int64_t> bytes(partitions, 0);
  std::vector<bool> used(partitions, false);
  const std::vector<std::int64_t> parameters = own_parameter_bytes(tree);
  for (int node = 0; node < tree.size(); ++node) {
    const int device = proposal.device_of_node[node];
    load[device] += costs[node];
    bytes[device] +=
        memory.bytes_of(tree.module(node), parameters[node], shape.in_flight_at(device, stages));
    if (tree.module(node).called) used[device] = true;
  }
  proposal.worst_load = *std::max_element(load.begin(), load.end());
  proposal.worst_bytes = *std::max_element(bytes.begin(), bytes.end());
  proposal.used_devices = static_cast<int>(std::count(used.begin(), used.end(), true));
}

void predict(const ModuleTree& tree, int partitions, const AutoOptions& options,
             Proposal& proposal) {
  const CallProgram program = make_call_program(tree, proposal.device_of_node);
  const schedule::Simulation step = predict_step(program, partitions, options.step);
  proposal.predicted_step_ns = step.length;
  proposal.predicted_use = step.use();
  proposal.predicted_memory = std::ranges::max(step.memory);
  proposal.messages = program.messages();
  proposal.sent_bytes = program.bytes();
}

}  // namespace

MemoryModel AutoOptions::memory() const {
  const schedule::ScheduleShape& shape = step.shape;
  // As OpenMicrobatches::admits_backward() has it.
  const bool is_kept = shape.schedule == schedule::Schedule::kZeroBubble;
  return {.state_factor = state_factor,
          .kept_activations = shape.in_flight(),
          .kept_recomputes = is_kept ? std::max(1L, std::lround(std::ceil(shape.memory))) : 0};
}

double AutoDecision::optimality_gap() const {
  if (contiguous_load == 0) return 1;
  return static_cast<double>(chosen.worst_load) / static_cast<double>(contiguous_load);
}

std::string AutoDecision::summary() const {
  const std::string memory =
      chosen.predicted_memory == 0
          ? ""
          : fmt::format(", and at most {:.2f} of 1F1B's activations kept", chosen.predicted_memory);
  return fmt::format(
      "Partition chosen: {} of {} proposals; predicted step {:.3f} ms, {:.0f} % of it at work{}; "
      "heaviest partition {:.3f} of the contiguous optimum; per microbatch {} messages and {} "
      "between partitions",
      chosen.method, proposals, static_cast<double>(chosen.predicted_step_ns) / 1e6,
      100 * chosen.predicted_use, memory, optimality_gap(), chosen.messages,
      human_bytes(chosen.sent_bytes));
}

AutoDecision assign_auto(const ModuleTree& tree, int partitions, const AutoOptions& options) {
  SMP_CHECK(tree.size() > 0 && partitions >= 1, "{} modules for {} partitions", tree.size(),
            partitions);
  const schedule::ScheduleShape& shape = options.step.shape;
  const MemoryModel memory = options.memory();
  const Units units = make_units(tree, options.memory_weight, memory);
  const std::vector<Cost> costs = own_costs(tree, options.memory_weight, memory);
  Proposals proposals = make_proposals(tree, units, partitions, options);
  const int wanted = std::min(partitions, units.size());
  for (Proposal& proposal : proposals.list) {
    weigh(tree, costs, memory, partitions, wanted, shape, proposal);
  }

  const auto eligible = [&](const Proposal& proposal) {
    const bool fits = options.capacity_bytes == 0 || !proposals.fits ||
                      proposal.worst_bytes <= options.capacity_bytes;
    return fits && proposal.used_devices >= wanted &&
           proposal.worst_load <= load_limit(proposals.contiguous_load);
  };
  AutoDecision decision{.assignment = {},
                        .chosen = {},
                        .contiguous_load = proposals.contiguous_load,
                        .fits = proposals.fits,
                        .proposals = static_cast<int>(proposals.list.size())};
  Proposal* best = nullptr;
  for (Proposal& proposal : proposals.list) {
    if (!proposals.fits) {  // nothing else matters
      if (best == nullptr || proposal.worst_bytes < best->worst_bytes) best = &proposal;
      continue;
    }
    if (!eligible(proposal)) continue;
    predict(tree, partitions, options, proposal);
    const auto key = [](const Proposal& p) { return std::tie(p.predicted_step_ns, p.worst_load); };
    if (best == nullptr || key(proposal) < key(*best)) best = &proposal;
  }
  SMP_CHECK(best != nullptr, "none of {} partitions can be used", proposals.list.size());
  if (!proposals.fits) predict(tree, partitions, options, *best);
  decision.assignment = make_assignment(tree, best->device_of_node, partitions);
  decision.chosen = std::move(*best);
  return decision;
}

}  // namespace smp::partition
