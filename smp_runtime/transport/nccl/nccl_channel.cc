// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/nccl/nccl_channel.h"

#include <map>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/transport/host_identity.h"
#include "smp_runtime/transport/nccl/event_wait.h"
#include "smp_runtime/transport/nccl/nccl_pairs.h"

namespace smp::transport {
namespace {

constexpr int kSender = 0;
constexpr int kReceiver = 1;

/// The operations for the bytes of contiguous tensors; empty ones take none.
std::vector<NcclOperation> sends_of(std::span<const at::Tensor> tensors) {
  std::vector<NcclOperation> operations;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    operations.push_back({.kind = NcclOperation::Kind::kSend,
                          .from = tensor.const_data_ptr(),
                          .count = tensor.nbytes(),
                          .peer = kReceiver});
  }
  return operations;
}

std::vector<NcclOperation> receives_of(std::span<const at::Tensor> tensors) {
  std::vector<NcclOperation> operations;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.numel() == 0) continue;
    operations.push_back({.kind = NcclOperation::Kind::kReceive,
                          .to = tensor.data_ptr(),
                          .count = tensor.nbytes(),
                          .peer = kSender});
  }
  return operations;
}

std::vector<GpuInfo> gather_gpus(const StoreGather& group, int cuda_device) {
  GpuInfo mine{.host = host_identity(), .gpu = {}, .library = nccl_version()};
  if (cuda_device >= 0) mine.gpu = mine.library == 0 ? "unknown" : gpu_identity(cuda_device);
  const PackedGpuInfo info = packed(mine);
  std::vector<GpuInfo> infos;
  for (const PackedGpuInfo& one : group.gather_values("gpu", std::span(&info, 1))) {
    infos.push_back(one.unpacked());
  }
  return infos;
}

/// The first pair that would use NCCL but cannot is worth a word.
void tell_of_detours(const std::vector<GpuInfo>& infos, size_t rank) {
  for (size_t peer = 0; peer < infos.size(); ++peer) {
    if (peer == rank) continue;
    const std::string reason = why_not_nccl(infos[rank], infos[peer]);
    if (reason.empty()) continue;
    SMP_LOG(warning, "tensors between the GPUs of ranks {} and {} go through the hosts' memory: {}",
            rank, peer, reason);
    return;
  }
}

/// NCCL connects at first use, by a call that waits for the other end; here nobody waits for more.
void use_once(NcclCommunicator& communicator, const c10::Device& device, const WaitLimit& limit) {
  const c10::Stream stream = cuda::side_stream(device, cuda::Priority::kHigh);
  const c10::StreamGuard guard(stream);
  const std::vector<at::Tensor> byte{at::empty({1}, at::TensorOptions(device).dtype(at::kByte))};
  const auto operations = communicator.rank() == 0 ? sends_of(byte) : receives_of(byte);
  communicator.start(operations, cuda::native(stream), limit);
  const cuda::StreamEvent done(stream);
  communicator.wait_until([&] { return done.query(); }, limit);
}

}  // namespace

NcclChannel::NcclChannel(CommunicatorPointer outward, CommunicatorPointer inward,
                         const Settings& settings)
    : outward_(std::move(outward)),
      inward_(std::move(inward)),
      settings_(settings),
      send_stream_(cuda::side_stream(settings.device, cuda::Priority::kHigh)),
      receive_stream_(cuda::side_stream(settings.device, cuda::Priority::kHigh)) {}

void NcclChannel::await_computed(const cuda::StreamEvent& made) const {
  await(made, WaitLimit::after(settings_.timeout, "computing what is to be sent"), [this] {
    if (aborted_.load()) throw HostError("closed");
  });
}

void NcclChannel::send(std::span<const at::Tensor> tensors, ByteChannel& frames) {
  const auto limit = WaitLimit::after(settings_.timeout, "sending tensors between GPUs");
  frames.await_credit(limit);
  outward_->start(sends_of(tensors), cuda::native(send_stream_), limit);
  for (const at::Tensor& tensor : tensors) cuda::note_use(tensor, send_stream_);
  const cuda::StreamEvent sent(send_stream_);
  outward_->wait_until([&] { return sent.query(); }, limit);
}

at::Tensor NcclChannel::allocate(at::IntArrayRef sizes, at::ScalarType type) const {
  // Under the stream that writes: the memory may still be read there.
  const c10::StreamGuard guard(receive_stream_);
  return at::empty(sizes, at::TensorOptions(settings_.device).dtype(type));
}

void NcclChannel::receive(std::span<const at::Tensor> tensors, ByteChannel& frames) {
  const auto limit = WaitLimit::after(settings_.timeout, "receiving tensors between GPUs");
  frames.give_credit();
  inward_->start(receives_of(tensors), cuda::native(receive_stream_), limit);
  const cuda::StreamEvent received(receive_stream_);
  inward_->wait_until([&] { return received.query(); }, limit);
}

void NcclChannel::abort() {
  aborted_.store(true);
  outward_->abort("closed");
  inward_->abort("closed");
}

NcclEnds connect_nccl(const StoreGather& group, int cuda_device) {
  const auto rank = static_cast<size_t>(group.rank);
  const auto size = static_cast<size_t>(group.size);
  const std::vector<GpuInfo> infos = gather_gpus(group, cuda_device);
  tell_of_detours(infos, rank);
  NcclEnds ends;
  ends.channels.resize(size);
  const std::vector<Direction> directions = nccl_directions(infos);
  if (directions.empty()) return ends;

  const auto touches = [&](int one) { return one == group.rank; };
  std::vector<NcclId> ids(size);
  for (const Direction& way : directions) {
    if (!touches(way.from)) continue;
    if (!ends.library) ends.library = nccl_library(cuda_device);
    ids[static_cast<size_t>(way.to)] = ends.library->new_id();
  }
  const std::vector<NcclId> all_ids = group.gather_values("nccl", std::span<const NcclId>(ids));

  std::map<int, NcclChannel::CommunicatorPointer> outward;
  std::map<int, NcclChannel::CommunicatorPointer> inward;
  const c10::Device device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(cuda_device));
  for (const Direction& way : directions) {
    if (!touches(way.from) && !touches(way.to)) continue;
    const bool sends = touches(way.from);
    const std::string name = fmt::format("NCCL from rank {} to rank {}", way.from, way.to);
    auto communicator = std::make_unique<NcclCommunicator>(
        *ends.library, all_ids[static_cast<size_t>(way.from) * size + static_cast<size_t>(way.to)],
        NcclCommunicator::Place{.rank = sends ? 0 : 1, .size = 2, .name = name});
    const auto limit = WaitLimit::after(group.limit.timeout, "connecting");
    communicator->connect(limit);
    use_once(*communicator, device, limit);
    (sends ? outward : inward)[sends ? way.to : way.from] = std::move(communicator);
  }
  for (auto& [peer, communicator] : outward) {
    ends.channels[static_cast<size_t>(peer)] = std::make_unique<NcclChannel>(
        std::move(communicator), std::move(inward.at(peer)),
        NcclChannel::Settings{.device = device, .timeout = group.limit.timeout});
  }
  SMP_LOG(debug, "tensors between GPUs go by NCCL {} to {} of {} ranks", nccl_version(),
          outward.size(), size - 1);
  return ends;
}

}  // namespace smp::transport
