// SPDX-License-Identifier: Apache-2.0
// Advice to users about errors that NCCL does not explain.
#pragma once

#include <string_view>

namespace smp::transport {

/// To be put behind NCCL's own words; empty if they say enough.
inline std::string_view nccl_advice(std::string_view text) {
  const auto says = [text](std::string_view words) {
    return text.find(words) != std::string_view::npos;
  };
  if (says("Duplicate GPU detected")) {
    return "; NCCL takes one rank on each GPU: give each rank its own (in Python by "
           "torch.cuda.set_device before its tensors are made), and start one rank for each GPU, "
           "or have ranks share one by the backend smddp";
  }
  if (says("unhandled system error") || says("unhandled cuda error")) {
    return "; mostly memory has run out: of the GPU (nvidia-smi; take smaller batches or split the "
           "model further) or under /dev/shm (df /dev/shm; start containers with a larger "
           "--shm-size)";
  }
  return {};
}

}  // namespace smp::transport
