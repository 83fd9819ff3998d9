// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_pairs.h"

#include <fmt/format.h>

#include "smp_runtime/core/plain_bytes.h"

namespace smp::transport {

PackedGpuInfo packed(const GpuInfo& info) {
  PackedGpuInfo all{.library = info.library};
  put(all.host, info.host);
  put(all.gpu, info.gpu);
  return all;
}

std::string why_not_nccl(const GpuInfo& one, const GpuInfo& other) {
  if (one.gpu.empty() || other.gpu.empty()) return {};
  if (one.library == 0 || other.library == 0) {
    return "the library was built without GPU code (SMP_WITH_CUDA), so it has no NCCL";
  }
  if (one.library != other.library) {
    return fmt::format("they have NCCL {} and {}; install one version of torch", one.library,
                       other.library);
  }
  if (share_gpu(one, other)) {
    return fmt::format("they share the GPU {}, and NCCL takes one rank on each", one.gpu);
  }
  return {};
}

std::vector<Direction> nccl_directions(std::span<const GpuInfo> infos) {
  std::vector<Direction> directions;
  for (int low = 0; low < static_cast<int>(infos.size()); ++low) {
    for (int high = low + 1; high < static_cast<int>(infos.size()); ++high) {
      const GpuInfo& one = infos[static_cast<size_t>(low)];
      const GpuInfo& other = infos[static_cast<size_t>(high)];
      if (one.gpu.empty() || other.gpu.empty() || !why_not_nccl(one, other).empty()) continue;
      directions.push_back({.from = low, .to = high});
      directions.push_back({.from = high, .to = low});
    }
  }
  return directions;
}

}  // namespace smp::transport
