// SPDX-License-Identifier: Apache-2.0
// Ranks' descriptions of their GPUs, the pairs of a group's ranks that talk through NCCL, and the
// order in which they make their communicators.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace smp::transport {

/// A GPU and the NCCL of its rank.
struct GpuInfo {
  std::string host;
  std::string gpu;  ///< names it on its host; empty without one
  int library = 0;  ///< NCCL's version; 0 in a build without it
};

/// NCCL takes one rank on each GPU.
inline bool share_gpu(const GpuInfo& one, const GpuInfo& other) {
  return !one.gpu.empty() && one.gpu == other.gpu && one.host == other.host;
}

/// A GpuInfo on its way.
struct PackedGpuInfo {
  std::array<char, 128> host{};
  std::array<char, 64> gpu{};
  int32_t library = 0;

  [[nodiscard]] GpuInfo unpacked() const { return {host.data(), gpu.data(), library}; }
};

[[nodiscard]] PackedGpuInfo packed(const GpuInfo& info);

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
