// SPDX-License-Identifier: Apache-2.0
// What users can do about errors that NCCL does not explain.
#pragma once

#include <initializer_list>
#include <string_view>

namespace smp::transport {

/// To be put behind NCCL's own words; empty if they say enough.
inline std::string_view nccl_advice(std::string_view text) {
  for (const std::string_view unexplained : {"unhandled system error", "unhandled cuda error"}) {
    if (text.find(unexplained) == std::string_view::npos) continue;
    return "; mostly memory has run out: of the GPU (nvidia-smi; take smaller batches or split the "
           "model further) or under /dev/shm (df /dev/shm; start containers with a larger "
           "--shm-size)";
  }
  return {};
}

}  // namespace smp::transport
