// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/replicas/broadcast.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

#include "smp_runtime/session/group_failure.h"

namespace smp::replicas {

void broadcast_tensors(const std::string& group_name, const std::vector<at::Tensor>& tensors,
                       int root, bool may_join) {
  constexpr std::size_t kBucketBytes = 250 * 1024 * 1024;
  const auto group = c10d::resolve_process_group(group_name);
  if (group->getSize() == 1 || tensors.empty()) return;
  const at::NoGradGuard no_grad;
  session::naming_group(
      *group, "a broadcast of parameters and buffers",
      [&] { c10d::broadcast_coalesced(group, tensors, kBucketBytes, root); },
      session::uneven(may_join));
}

}  // namespace smp::replicas
