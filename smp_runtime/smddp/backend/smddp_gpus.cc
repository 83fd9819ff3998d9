// SPDX-License-Identifier: Apache-2.0
// Calls of SmddpBackend for tensors of a GPU.
#include <utility>

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::smddp {

using collectives::Communicator;
using transport::WaitLimit;

/// The way for a call: kCpu for tensors of the CPU, and for what else goes through pinned memory.
collectives::GpuRoute SmddpBackend::gpu_route(const DeviceScope& scope,
                                              const collectives::CallSignature& call,
                                              collectives::Collective collective,
                                              const at::Tensor& tensor,
                                              std::chrono::milliseconds timeout) {
  if (!scope.gpu()) return collectives::GpuRoute::kCpu;
  return gpus(*scope.gpu(), timeout).route(call, collective, tensor.scalar_type());
}

/// Made by the first call with tensors of a GPU, which waits for all ranks to make it.
GpuGroup& SmddpBackend::gpus(const c10::Device& gpu, std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (gpus_) {
      TORCH_CHECK_VALUE(gpus_->device() == gpu, "smddp: the group got tensors of ", gpu,
                        " after those of ", gpus_->device(), "; a rank has one GPU in a group");
      return *gpus_;
    }
  }
  start(DeviceScope(streams_, {}),
        {c10d::OpType::UNKNOWN, "bootstrap of the ranks' GPUs", timeout, false, {}}, {},
        [this, gpu](Communicator&, const WaitLimit& limit) {
          std::unique_ptr<GpuGroup> made = make_gpu_group(gpu, limit);
          const std::lock_guard lock(mutex_);
          gpus_ = std::move(made);
        })
      ->wait();
  const std::lock_guard lock(mutex_);
  return *gpus_;
}

std::unique_ptr<GpuGroup> SmddpBackend::make_gpu_group(const c10::Device& gpu,
                                                       const WaitLimit& limit) {
  const int nccl = transport::nccl_version();
  const GpuGroup::Member member{.device = gpu,
                                .host = transport::host_identity(),
                                .gpu = nccl > 0 ? transport::gpu_identity(gpu.index()) : "",
                                .nccl = nccl};
  const auto make_rail = [&](const std::vector<int>& ranks, int me) {
    std::vector<int> names;
    for (const int rank : ranks) names.push_back(communicator_->name(rank));
    session::C10dStore keys(
        c10::make_intrusive<c10d::PrefixStore>(fmt::format("rail/{}", ranks.front()), store_));
    return std::make_unique<Communicator>(keys, me, std::move(names), member.host, options_.tuning,
                                          options_.network, limit);
  };
  return std::make_unique<GpuGroup>(
      *communicator_, transport::nccl_library(gpu.index()), member,
      GpuGroup::Settings{.only = options_.gpu_route, .nccl_has_plugin = options_.nccl_has_plugin},
      make_rail, limit);
}

}  // namespace smp::smddp
