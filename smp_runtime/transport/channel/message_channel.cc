// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/message_channel.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

bool have_bytes(std::span<const at::Tensor> tensors) {
  return std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.numel() > 0; });
}

}  // namespace

MessageChannel::MessageChannel(std::unique_ptr<ByteChannel> bytes,
                               std::unique_ptr<NcclChannel> gpus, const Settings& settings)
    : bytes_(std::move(bytes)),
      gpus_(std::move(gpus)),
      settings_(settings),
      sent_copies_(copying()),
      received_copies_(copying()) {}

StagedCopies::Settings MessageChannel::copying() {
  return {.timeout = settings_.timeout, .look_around = [this] {
            if (ended_.load()) throw HostError("closed");
          }};
}

Apart MessageChannel::apart() const { return gpus_ ? Apart(gpus_->device_type()) : std::nullopt; }

bool MessageChannel::send_at_once(const Outgoing& message) {
  if (message.on_device) return false;
  const auto packed = std::make_shared<PackedMessage>(pack(message, apart(), sent_copies_));
  return packed->apart.empty() && bytes_->send_at_once(packed->parts(), packed);
}

void MessageChannel::send(const Outgoing& message) {
  send_packed(std::make_shared<PackedMessage>(pack(message, apart(), sent_copies_)));
}

void MessageChannel::send_fin() {
  send_packed(std::make_shared<PackedMessage>(PackedMessage{.frame = {.fin = 1}}));
}

void MessageChannel::send_packed(const std::shared_ptr<PackedMessage>& message) {
  const bool to_gpu = have_bytes(message->apart);
  if (to_gpu) gpus_->await_computed(message->made);
  bytes_->send(message->parts(), message);
  if (to_gpu) gpus_->send(message->apart, *bytes_);
}

std::optional<Message> MessageChannel::receive() {
  MessageFrame frame;
  bytes_->receive_header(std::as_writable_bytes(std::span(&frame, 1)));
  if (frame.fin != 0) return std::nullopt;
  const auto head = std::make_shared<std::string>(frame.head_bytes(), '\0');
  const ByteChannel::Room head_room = std::as_writable_bytes(std::span(*head));
  bytes_->receive(std::span(&head_room, 1), head);
  const auto message = std::make_shared<ArrivingMessage>(frame, std::move(*head));
  bytes_->receive(message->rooms(), message);
  std::vector<at::Tensor> apart;
  for (Received& one : message->tensors()) {
    if (one.tensor.defined() || !gpus_) continue;
    one.tensor = gpus_->allocate(one.meta.sizes, one.meta.type);
    apart.push_back(one.tensor);
  }
  if (have_bytes(apart)) gpus_->receive(apart, *bytes_);
  return std::move(*message).finish(settings_.cuda_device, received_copies_);
}

void MessageChannel::abort() {
  bytes_->abort();
  if (gpus_) gpus_->abort();
}

void MessageChannel::end() {
  ended_.store(true);
  abort();
}

}  // namespace smp::transport
