// SPDX-License-Identifier: Apache-2.0
// A rank's description of its GPU for the others, before they connect.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "smp_runtime/core/fixed_text.h"

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

inline PackedGpuInfo packed(const GpuInfo& info) {
  PackedGpuInfo all{.library = info.library};
  put(all.host, info.host);
  put(all.gpu, info.gpu);
  return all;
}

}  // namespace smp::transport
