// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/message_channel.h"

#include <algorithm>
#include <cstddef>
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

/// A message's place among all of a job.
struct Place {
  uint64_t sender;
  uint64_t receiver;
  uint64_t number;
};

MacKey::Field bytes_of(const Place& place) { return std::as_bytes(std::span(&place, 1)); }

/// Bytes of a frame that its code is of.
MacKey::Field covered(const MessageFrame& frame) {
  return std::as_bytes(std::span(&frame, 1)).first(offsetof(MessageFrame, code));
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
  if (!packed->apart.empty()) return false;
  seal(*packed);
  if (!bytes_->send_at_once(packed->parts(), packed)) return false;
  ++sent_;
  return true;
}

void MessageChannel::send(const Outgoing& message) {
  send_packed(std::make_shared<PackedMessage>(pack(message, apart(), sent_copies_)));
}

void MessageChannel::send_fin() {
  send_packed(std::make_shared<PackedMessage>(PackedMessage{.frame = {.fin = 1}}));
}

void MessageChannel::seal(PackedMessage& message) const {
  if (!settings_.codes) return;
  const auto& [key, rank, peer] = *settings_.codes;
  const Place place{rank, peer, sent_};
  message.frame.head_code = key.of({field(message.head)});
  message.frame.code = key.of({bytes_of(place), covered(message.frame)});
}

void MessageChannel::refuse() const {
  throw HostError(
      "message {} that came in its name does not carry the code of the job's secret: another "
      "process has sent it; let nobody outside the job reach the ports of its hosts",
      received_);
}

void MessageChannel::send_packed(const std::shared_ptr<PackedMessage>& message) {
  seal(*message);
  ++sent_;
  const bool to_gpu = have_bytes(message->apart);
  if (to_gpu) gpus_->await_computed(message->made);
  bytes_->send(message->parts(), message);
  if (to_gpu) gpus_->send(message->apart, *bytes_);
}

std::optional<Message> MessageChannel::receive() {
  MessageFrame frame;
  bytes_->receive_header(std::as_writable_bytes(std::span(&frame, 1)));
  const std::optional<Codes>& codes = settings_.codes;
  if (codes) {
    const Place place{codes->peer, codes->rank, received_};
    if (!codes->key.fits(frame.code, {bytes_of(place), covered(frame)})) refuse();
  }
  if (frame.fin != 0) return std::nullopt;
  const auto head = std::make_shared<std::string>(frame.head_bytes(), '\0');
  const ByteChannel::Room head_room = std::as_writable_bytes(std::span(*head));
  bytes_->receive(std::span(&head_room, 1), head);
  if (codes && !codes->key.fits(frame.head_code, {field(*head)})) refuse();
  ++received_;
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
