// SPDX-License-Identifier: Apache-2.0
// Which ranks of a group talk through NCCL, and in which order they make their communicators.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace smp::transport {

/// What a rank tells of its GPU.
struct GpuInfo {
  std::string host;
  std::string gpu;  ///< names it on its host; empty without one
  int library = 0;  ///< NCCL's version; 0 in a build without it
};

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
