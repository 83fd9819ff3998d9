// SPDX-License-Identifier: Apache-2.0
// The way of a group's tensors from GPU to GPU: NCCL among all ranks, or among those of a host with
// our exchange between hosts.
//
// Ranks agree on each call through their communicator before NCCL gets it: who makes another call,
// or has ended, is named then, and no kernel waits for it. Sums of NCCL are the same on all ranks;
// the order in which they are made is NCCL's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "smp_runtime/smddp/collectives/communicator.h"
#include "smp_runtime/smddp/collectives/gpu_route.h"
#include "smp_runtime/transport/nccl/nccl_communicator.h"
#include "smp_runtime/transport/nccl/nccl_library.h"

namespace smp::smddp {

/// For the thread that runs the group's collectives; route() is for any.
class GpuGroup {
 public:
  using WaitLimit = transport::WaitLimit;
  using GpuRoute = collectives::GpuRoute;

  struct Member {
    c10::Device device;
    std::string host;  ///< host_identity()
    std::string gpu;   ///< gpu_identity(); empty where NCCL is not to be used
    int nccl = 0;      ///< nccl_version()
  };
  struct Settings {
    std::optional<GpuRoute> only;
    bool nccl_has_plugin = false;
  };
  /// Makes this rank's end of a group of some of the ranks, of which it is number `me`.
  using RailMaker = std::function<std::unique_ptr<collectives::Communicator>(
      const std::vector<int>& ranks, int me)>;

  /// Collective over `group`, which outlives this. `library` is null in a build without NCCL.
  /// Throws ConfigError or HostError.
  GpuGroup(collectives::Communicator& group, std::unique_ptr<transport::NcclLibrary> library,
           const Member& member, const Settings& settings, const RailMaker& make_rail,
           const WaitLimit& limit);
  GpuGroup(const GpuGroup&) = delete;
  GpuGroup& operator=(const GpuGroup&) = delete;
  /// Leaves the group of its rail.
  ~GpuGroup();

  [[nodiscard]] const c10::Device& device() const { return member_.device; }

  /// For a call of this kind; kCpu for what NCCL does not know.
  [[nodiscard]] GpuRoute route(const collectives::CallSignature& call,
                               collectives::Collective collective, at::ScalarType type) const;

  /// All return when the device is done, on `stream`; `call` is the one that route() saw. Tensors
  /// are contiguous and what makes them is done.
  void all_reduce(GpuRoute route, const collectives::CallSignature& call, const at::Tensor& tensor,
                  const c10::Stream& stream, const WaitLimit& limit);
  /// `whole` has the part of rank r at r times its size.
  void all_gather(const collectives::CallSignature& call, const at::Tensor& part,
                  const at::Tensor& whole, const c10::Stream& stream, const WaitLimit& limit);
  void reduce_scatter(const collectives::CallSignature& call, const at::Tensor& whole,
                      const at::Tensor& part, const c10::Stream& stream, const WaitLimit& limit);
  void broadcast(const collectives::CallSignature& call, int root, const at::Tensor& tensor,
                 const c10::Stream& stream, const WaitLimit& limit);

 private:
  using Nccl = transport::NcclCommunicator;
  void connect(const topology::GroupLayout& layout, const RailMaker& make_rail,
               const WaitLimit& limit);
  template <typename Body>
  void agreed(collectives::CallSignature call, collectives::Collective collective, GpuRoute route,
              const WaitLimit& limit, const Body& body);
  void run(Nccl& nccl, transport::NcclOperation operation, const c10::Stream& stream,
           const WaitLimit& limit);
  void sum_between_hosts(const collectives::CallSignature& call, const at::Tensor& tensor,
                         const c10::Stream& stream, const WaitLimit& limit);

  collectives::Communicator& group_;
  const std::unique_ptr<transport::NcclLibrary> library_;
  const Member member_;
  std::unique_ptr<collectives::GpuRoutes> routes_;
  std::unique_ptr<Nccl> world_;                      // null where no size takes it
  std::unique_ptr<Nccl> host_;                       // likewise, of the ranks of this host
  std::unique_ptr<collectives::Communicator> rail_;  // of those of my place on all hosts
};

}  // namespace smp::smddp
