// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/backend/gpu_group.h"

#include <chrono>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/smddp/backend/byte_view.h"
#include "smp_runtime/transport/nccl/event_wait.h"
#include "smp_runtime/transport/nccl/nccl_pairs.h"

namespace smp::smddp {
namespace {

using collectives::CallSignature;
using collectives::Collective;
using collectives::Communicator;
using collectives::GpuGroupShape;
using collectives::GpuRoute;
using topology::GroupLayout;
using transport::NcclId;
using transport::NcclOperation;
using transport::PackedGpuInfo;

/// Everybody's, by rank.
template <typename T>
std::vector<T> gather(Communicator& group, const T& mine, const transport::WaitLimit& limit) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<size_t>(group.size()));
  std::vector<collectives::Bytes> outputs;
  for (T& one : all) outputs.push_back(std::as_writable_bytes(std::span(&one, 1)));
  CallSignature call;
  call.type = ElementType::kBytes;
  call.elements = sizeof(T);
  group.all_gather(call, std::as_bytes(std::span(&mine, 1)), outputs, limit);
  return all;
}

GpuGroupShape shape_of(const GroupLayout& layout, const std::vector<transport::GpuInfo>& infos) {
  GpuGroupShape shape{.hosts = layout.hosts(),
                      .ranks_per_host = static_cast<int>(layout.ranks_on.front().size()),
                      .no_nccl = {}};
  for (const auto& ranks : layout.ranks_on) {
    if (ranks.size() != layout.ranks_on.front().size()) shape.ranks_per_host = 0;
  }
  for (size_t one = 0; one < infos.size(); ++one) {
    if (infos[one].gpu.empty()) {
      shape.no_nccl =
          fmt::format("rank {} has no NCCL; was its library built without GPU code?", one);
    }
    for (size_t other = one + 1; shape.no_nccl.empty() && other < infos.size(); ++other) {
      const std::string reason = transport::why_not_nccl(infos[one], infos[other]);
      if (!reason.empty()) shape.no_nccl = fmt::format("ranks {} and {}: {}", one, other, reason);
    }
    if (!shape.no_nccl.empty()) break;
  }
  return shape;
}

/// A script that sets no device has all its ranks on the first GPU: right, slow, and easily
/// overlooked.
void warn_of_shared_gpu(const Communicator& group, const std::vector<transport::GpuInfo>& infos) {
  for (int one = 0; one < group.size(); ++one) {
    for (int other = one + 1; other < group.size(); ++other) {
      const transport::GpuInfo& info = infos[static_cast<size_t>(one)];
      if (!transport::share_gpu(info, infos[static_cast<size_t>(other)])) continue;
      SMP_LOG(
          warning,
          "ranks {} and {} both compute on the GPU {}: what they exchange goes through the "
          "memory of the host; give each rank a GPU of its own (in Python by "
          "torch.cuda.set_device before its tensors are made), and start one rank for each GPU. "
          "SMDDP_GPU_ROUTE=host says that it is meant",
          group.name(one), group.name(other), info.gpu);
      return;
    }
  }
}

bool knows(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
    case at::kDouble:
    case at::kHalf:
    case at::kBFloat16:
    case at::kChar:
    case at::kByte:
    case at::kInt:
    case at::kLong:
      return true;
    default:
      return false;
  }
}

}  // namespace

GpuGroup::GpuGroup(Communicator& group, std::unique_ptr<transport::NcclLibrary> library,
                   const Member& member, const Settings& settings, const RailMaker& make_rail,
                   const WaitLimit& limit)
    : group_(group), library_(std::move(library)), member_(member) {
  const transport::GpuInfo mine{
      .host = member.host, .gpu = library_ ? member.gpu : std::string(), .library = member.nccl};
  std::vector<transport::GpuInfo> infos;
  std::vector<std::string> hosts;
  for (const PackedGpuInfo& info : gather(group, transport::packed(mine), limit)) {
    infos.push_back(info.unpacked());
    hosts.push_back(infos.back().host);
  }
  const GroupLayout layout = GroupLayout::from(hosts, group.rank());
  const GpuGroupShape shape = shape_of(layout, infos);
  routes_ = settings.only
                ? std::make_unique<collectives::GpuRoutes>(shape, *settings.only)
                : std::make_unique<collectives::GpuRoutes>(
                      shape, collectives::rates_for(group.provider(), settings.nccl_has_plugin));
  if (group.rank() == 0) {
    SMP_LOG(debug, "sums of GPU tensors over {} ranks on {} hosts go by {}", group.size(),
            layout.hosts(), routes_->text());
    if (!settings.only) warn_of_shared_gpu(group, infos);
  }
  if (shape.no_nccl.empty()) connect(layout, make_rail, limit);
}

/// All ranks make the same communicators in the same order.
void GpuGroup::connect(const GroupLayout& layout, const RailMaker& make_rail,
                       const WaitLimit& limit) {
  const auto make = [&](int rank, std::span<const int> members) {
    const std::vector<NcclId> ids = gather(group_, library_->new_id(), limit);
    auto made = std::make_unique<Nccl>(
        *library_, ids[static_cast<size_t>(members.front())],
        Nccl::Place{.rank = rank,
                    .size = static_cast<int>(members.size()),
                    .name = fmt::format("NCCL of {} ranks from rank {} on", members.size(),
                                        group_.name(members.front()))});
    made->connect(limit);
    return made;
  };
  std::vector<int> all;
  for (int rank = 0; rank < layout.size(); ++rank) all.push_back(rank);
  if (routes_->has(GpuRoute::kNccl)) world_ = make(layout.rank, all);
  if (routes_->has(GpuRoute::kNcclInside)) {
    host_ = make(layout.my_local(), layout.ranks_on[static_cast<size_t>(layout.my_host())]);
    std::vector<int> rail;
    for (int host = 0; host < layout.hosts(); ++host) {
      rail.push_back(layout.rank_at(host, layout.my_local()));
    }
    rail_ = make_rail(rail, layout.my_host());
  }
}

GpuGroup::~GpuGroup() {
  try {
    if (rail_) rail_->leave(WaitLimit::after(Communicator::kLeaveLimit, "leaving"));
  } catch (const Error&) {
    // The group is broken, and whoever made it so was named then.
  }
}

GpuRoute GpuGroup::route(const CallSignature& call, Collective collective,
                         at::ScalarType type) const {
  const bool reduces =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  const bool has_op =
      call.op <= ReduceOp::kMax && (call.op != ReduceOp::kAverage || at::isFloatingType(type));
  if (call.elements == 0 || (reduces && !(knows(type) && has_op))) return GpuRoute::kCpu;
  const GpuRoute best = routes_->route(call.elements * size_bytes(call.type));
  if (collective == Collective::kAllReduce || best != GpuRoute::kNcclInside) return best;
  // Moves and scatters have no way of ours between GPUs of several hosts.
  return world_ ? GpuRoute::kNccl : GpuRoute::kCpu;
}

/// Runs `body` once all ranks make this call by this route; a failure breaks the group for all.
template <typename Body>
void GpuGroup::agreed(CallSignature call, Collective collective, GpuRoute route,
                      const WaitLimit& limit, const Body& body) {
  call.route = static_cast<uint8_t>(route);
  group_.agree(call, collective, limit);
  try {
    body();
  } catch (const HostError& error) {
    group_.abort(error.what());
    throw;
  }
}

void GpuGroup::run(Nccl& nccl, NcclOperation operation, const c10::Stream& stream,
                   const WaitLimit& limit) {
  nccl.start(std::span(&operation, 1), cuda::native(stream), limit);
  const cuda::StreamEvent done(stream);
  try {
    nccl.wait_until(
        [&] {
          group_.throw_if_broken();
          return done.query();
        },
        limit);
  } catch (const HostError& error) {
    nccl.abort(error.what());
    throw;
  }
}

void GpuGroup::all_reduce(GpuRoute route, const CallSignature& call, const at::Tensor& tensor,
                          const c10::Stream& stream, const WaitLimit& limit) {
  agreed(call, Collective::kAllReduce, route, limit, [&] {
    if (route == GpuRoute::kNcclInside) return sum_between_hosts(call, tensor, stream, limit);
    run(*world_,
        {.kind = NcclOperation::Kind::kAllReduce,
         .from = tensor.const_data_ptr(),
         .to = tensor.data_ptr(),
         .count = static_cast<size_t>(tensor.numel()),
         .type = tensor.scalar_type(),
         .reduction = call.op},
        stream, limit);
  });
}

/// Each rank of a host gets the host's sum of one chunk, has it added to the other hosts' by its
/// rail, and all chunks come back together.
void GpuGroup::sum_between_hosts(const CallSignature& call, const at::Tensor& tensor,
                                 const c10::Stream& stream, const WaitLimit& limit) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard guard(stream);
  const bool average = call.op == ReduceOp::kAverage;
  // A sum may be beyond the largest float16 where the average is not.
  const at::ScalarType type =
      average && tensor.scalar_type() == at::kHalf ? at::kFloat : tensor.scalar_type();
  const int64_t chunk = (tensor.numel() + host_->size() - 1) / host_->size();
  const at::Tensor whole = at::empty({chunk * host_->size()}, tensor.options().dtype(type));
  // The rest of the last chunk belongs to nobody; whatever is in it is added up and dropped.
  whole.narrow(0, 0, tensor.numel()).copy_(tensor.view({-1}));
  const at::Tensor own = whole.narrow(0, chunk * host_->rank(), chunk);
  NcclOperation operation{.kind = NcclOperation::Kind::kReduceScatter,
                          .from = whole.const_data_ptr(),
                          .to = own.data_ptr(),
                          .count = static_cast<size_t>(chunk),
                          .type = type,
                          .reduction = average ? ReduceOp::kSum : call.op};
  run(*host_, operation, stream, limit);

  const StagingBuffer buffer(own, true);
  transport::await(cuda::StreamEvent(stream), limit, [this] { group_.throw_if_broken(); });
  CallSignature rail_call = header_of(own);
  rail_call.op = average ? ReduceOp::kSum : call.op;
  rail_->all_reduce(rail_call, bytes_in(buffer.tensor()), bytes_out(buffer.tensor()), limit);
  buffer.finish();

  operation = {.kind = NcclOperation::Kind::kAllGather,
               .from = own.const_data_ptr(),
               .to = whole.data_ptr(),
               .count = static_cast<size_t>(chunk),
               .type = type};
  run(*host_, operation, stream, limit);
  const at::Tensor sum = whole.narrow(0, 0, tensor.numel());
  if (average) sum.div_(group_.size());
  tensor.view({-1}).copy_(sum);
}

void GpuGroup::all_gather(const CallSignature& call, const at::Tensor& part,
                          const at::Tensor& whole, const c10::Stream& stream,
                          const WaitLimit& limit) {
  agreed(call, Collective::kAllGather, GpuRoute::kNccl, limit, [&] {
    run(*world_,
        {.kind = NcclOperation::Kind::kAllGather,
         .from = part.const_data_ptr(),
         .to = whole.data_ptr(),
         .count = part.nbytes()},
        stream, limit);
  });
}

void GpuGroup::reduce_scatter(const CallSignature& call, const at::Tensor& whole,
                              const at::Tensor& part, const c10::Stream& stream,
                              const WaitLimit& limit) {
  agreed(call, Collective::kReduceScatter, GpuRoute::kNccl, limit, [&] {
    run(*world_,
        {.kind = NcclOperation::Kind::kReduceScatter,
         .from = whole.const_data_ptr(),
         .to = part.data_ptr(),
         .count = static_cast<size_t>(part.numel()),
         .type = part.scalar_type(),
         .reduction = call.op},
        stream, limit);
  });
}

void GpuGroup::broadcast(const CallSignature& call, int root, const at::Tensor& tensor,
                         const c10::Stream& stream, const WaitLimit& limit) {
  CallSignature rooted = call;
  rooted.root = root;
  agreed(rooted, Collective::kBroadcast, GpuRoute::kNccl, limit, [&] {
    run(*world_,
        {.kind = NcclOperation::Kind::kBroadcast,
         .from = tensor.const_data_ptr(),
         .to = tensor.data_ptr(),
         .count = tensor.nbytes(),
         .peer = root},
        stream, limit);
  });
}

}  // namespace smp::smddp
