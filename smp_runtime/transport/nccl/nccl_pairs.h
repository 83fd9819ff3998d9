// SPDX-License-Identifier: Apache-2.0
// Pairs of a group's ranks that talk through NCCL, and the order in which they make their
// communicators.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "smp_runtime/transport/nccl/gpu_info.h"

namespace smp::transport {

/// NCCL keeps one order of all calls on a communicator, so each direction of a pair has its own.
struct Direction {
  int from;
  int to;
  bool operator==(const Direction&) const = default;
};

/// Both directions of every pair that can use NCCL: two GPUs (NCCL takes no GPU twice) and one
/// version. All ranks make theirs in this order, one after the other: of the first that is not
/// made, both ends are free to make it, so nobody waits in a circle.
[[nodiscard]] std::vector<Direction> nccl_directions(std::span<const GpuInfo> infos);

/// Why the pair cannot; empty where it can or where one of them has no GPU.
[[nodiscard]] std::string why_not_nccl(const GpuInfo& one, const GpuInfo& other);

}  // namespace smp::transport
