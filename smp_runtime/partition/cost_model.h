// SPDX-License-Identifier: Apache-2.0
// Cost of a module for a device: bytes, nanoseconds, and both mixed into one integer.
#pragma once

#include <cstdint>
#include <numeric>
#include <vector>

#include "smp_runtime/partition/module_tree.h"

namespace smp::partition {

/// A share of the whole model, in units of 2^-40. Integers, so that every rank and every platform
/// decides alike.
using Cost = std::int64_t;
inline constexpr Cost kWholeModel = Cost{1} << 40;

inline std::int64_t sum(const std::vector<std::int64_t>& amounts) {
  return std::accumulate(amounts.begin(), amounts.end(), std::int64_t{0});
}

/// Memory that a byte of parameters and a byte of activations take while training.
struct MemoryModel {
  /// Parameter, gradient and optimizer state for each byte of parameters: 4 for fp32 with Adam
  /// (4 + 4 + 8 bytes an element), 8 for bf16 or fp16 with fp32 masters (2 + 2 + 12).
  int state_factor = 1;
  std::int64_t kept_activations = 1;  ///< microbatches whose activations are held at one time
  /// Of how many a device holds what their backwards have recomputed there, beside one region at a
  /// time: deferred work keeps it.
  std::int64_t kept_recomputes = 0;

  /// Of a module, without those below it, and with `parameter_bytes` of its parameters, where
  /// activations of `kept` microbatches are held.
  [[nodiscard]] std::int64_t bytes_of(const Module& module, std::int64_t parameter_bytes,
                                      std::int64_t kept) const {
    return parameter_bytes * state_factor + module.recomputed_bytes * kept_recomputes +
           module.activation_bytes * kept;
  }
};

/// Own cost of each node: memory_weight × its share of the model's bytes (parameters, each counted
/// once at its first owner in execution order, and activations, as `memory` weighs them) plus the
/// rest × its share of the forward time. The sum over all nodes is at most kWholeModel, short of it
/// by rounding only. `memory_weight` lies in [0, 1].
std::vector<Cost> own_costs(const ModuleTree& tree, double memory_weight,
                            const MemoryModel& memory = {});

/// Parameter bytes of each node, shared ones counted once at their first owner.
std::vector<std::int64_t> own_parameter_bytes(const ModuleTree& tree);

/// Forward time of each node [ns]. A tree without times takes parameter bytes in their place: each
/// weight works once per sample.
std::vector<std::int64_t> forward_times(const ModuleTree& tree);

/// A third of each node's time in a step of one microbatch [ns], whose backward takes two forwards:
/// forward_times(), and a third of what the backward repeats.
std::vector<std::int64_t> own_times(const ModuleTree& tree);

/// amount / total × parts / kParts as a Cost, rounded down; 0 where the total is.
Cost share_of(std::int64_t amount, std::int64_t total, std::int64_t parts);

/// The resolution of memory_weight: `memory_parts(0.8)` is 0.8 × kParts.
inline constexpr std::int64_t kParts = 1'000'000;
std::int64_t memory_parts(double memory_weight);

}  // namespace smp::partition
