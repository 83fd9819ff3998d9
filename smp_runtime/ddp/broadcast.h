// SPDX-License-Identifier: Apache-2.0
// Broadcast of parameters and buffers, which makes replicas equal.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace smp::session {
class DeadlockDetector;
}

namespace smp::ddp {

/// Overwrites `tensors` with those of rank `root` of the group, in buckets. All ranks call it.
/// `may_join` and `watch`, which may be null, as in GradientReducer. Throws HostError, naming
/// ranks, when one is lost, and CallMismatch.
void broadcast_tensors(const std::string& group_name, const std::vector<at::Tensor>& tensors,
                       int root, bool may_join, session::DeadlockDetector* watch);

}  // namespace smp::ddp
