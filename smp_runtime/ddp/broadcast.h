// SPDX-License-Identifier: Apache-2.0
// Broadcast of parameters and buffers, which makes replicas equal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/utils/tensor_flatten.h>

#include "smp_runtime/session/group_failure.h"

namespace smp::ddp {

/// Overwrites `tensors` with those of rank `root` of the group, in buckets. All ranks call it.
/// `may_join` and `watch`, which may be null, as in GradientReducer. Throws HostError, naming
/// ranks, when one is lost, and CallMismatch.
inline void broadcast_tensors(const std::string& group_name, const std::vector<at::Tensor>& tensors,
                              int root, bool may_join, session::DeadlockDetector* watch) {
  constexpr std::size_t kBucketBytes = 250 * 1024 * 1024;
  const auto group = c10d::resolve_process_group(group_name);
  if (group->getSize() == 1 || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  constexpr std::string_view kWhat = "a broadcast of parameters and buffers";
  const session::Uneven advice = session::uneven(may_join);
  // Not c10d::broadcast_coalesced(), which waits as long as the group does.
  for (const auto& bucket : torch::utils::take_tensors(tensors, kBucketBytes)) {
    std::vector<at::Tensor> whole{torch::utils::flatten_dense_tensors(bucket.tensors)};
    const session::WaitingCall call = session::group_call(*group, kWhat, watch);
    const auto work = session::translate_c10d_errors(
        *group, kWhat, [&] { return group->broadcast(whole, {.rootRank = root}); }, advice);
    session::await(*group, kWhat, *work, whole[0].device().type(), advice, watch);
    if (group->getRank() == root) continue;
    const auto parts = torch::utils::unflatten_dense_tensors(whole[0], bucket.tensors);
    for (std::size_t i = 0; i < parts.size(); ++i) bucket.tensors[i].copy_(parts[i]);
  }
}

}  // namespace smp::ddp
