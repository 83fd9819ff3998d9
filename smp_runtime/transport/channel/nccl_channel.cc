// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/nccl_channel.h"

#include <utility>

#include <ATen/ops/empty.h>
#include <c10/core/StreamGuard.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/event_wait.h"

namespace smp::transport {
namespace {

constexpr int kSender = 0;
constexpr int kReceiver = 1;

}  // namespace

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

NcclChannel::NcclChannel(std::unique_ptr<MessageChannel> frames, CommunicatorPointer outward,
                         CommunicatorPointer inward, const Settings& settings)
    : frames_(std::move(frames)),
      outward_(std::move(outward)),
      inward_(std::move(inward)),
      settings_(settings),
      send_stream_(cuda::side_stream(settings.device, cuda::Priority::kHigh)),
      receive_stream_(cuda::side_stream(settings.device, cuda::Priority::kHigh)) {}

bool NcclChannel::send_at_once(const PackedMessage& message) {
  return message.apart.empty() && frames_->send_at_once(message);
}

void NcclChannel::send(const PackedMessage& message) {
  const std::vector<NcclOperation> operations = sends_of(message.apart);
  if (operations.empty()) return frames_->send(message);
  // By the host: a kernel of NCCL that waits takes a part of the GPU, here and there.
  await(message.made, WaitLimit::after(settings_.timeout, "computing what is to be sent"), [this] {
    if (aborted_.load()) throw HostError("closed");
  });
  frames_->send(message);
  const auto limit = WaitLimit::after(settings_.timeout, "sending tensors between GPUs");
  frames_->await_credit(limit);
  outward_->start(operations, cuda::native(send_stream_), limit);
  for (const at::Tensor& tensor : message.apart) cuda::note_use(tensor, send_stream_);
  const cuda::StreamEvent sent(send_stream_);
  outward_->wait_until([&] { return sent.query(); }, limit);
}

std::optional<ArrivingMessage> NcclChannel::receive() {
  std::optional<ArrivingMessage> message = frames_->receive();
  if (!message) return message;
  std::vector<at::Tensor> tensors;
  {
    // Allocated under the stream that writes: their memory may still be read there.
    const c10::StreamGuard guard(receive_stream_);
    for (Received& one : message->tensors()) {
      if (one.tensor.defined()) continue;
      one.tensor =
          at::empty(one.meta.sizes, at::TensorOptions(settings_.device).dtype(one.meta.type));
      tensors.push_back(one.tensor);
    }
  }
  const std::vector<NcclOperation> operations = receives_of(tensors);
  if (operations.empty()) return message;
  const auto limit = WaitLimit::after(settings_.timeout, "receiving tensors between GPUs");
  frames_->give_credit();
  inward_->start(operations, cuda::native(receive_stream_), limit);
  const cuda::StreamEvent received(receive_stream_);
  inward_->wait_until([&] { return received.query(); }, limit);
  return message;
}

void NcclChannel::abort() {
  aborted_.store(true);
  frames_->abort();
  outward_->abort("closed");
  inward_->abort("closed");
}

}  // namespace smp::transport
