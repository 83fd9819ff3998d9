// SPDX-License-Identifier: Apache-2.0
// What carries a c10d group's tensors: what one may ask of a group depends on it.
#pragma once

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

namespace smp::session {

/// Throws c10::Error if the group has no backend for `device`.
inline bool is_gloo(c10d::ProcessGroup& group, c10::DeviceType device) {
  return group.getBackend(device)->getBackendName() == "gloo";
}

}  // namespace smp::session
