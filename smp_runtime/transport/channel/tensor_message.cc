// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/tensor_message.h"

#include <memory>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/tensor_payload.h"

namespace smp::transport {
namespace {

TensorPayload* tensors_of(const Message& message) {
  if (!message.payload) return nullptr;
  auto* payload = dynamic_cast<TensorPayload*>(message.payload.get());
  SMP_CHECK(payload != nullptr, "a payload that holds no tensors");
  return payload;
}

}  // namespace

size_t MessageFrame::head_bytes() const {
  if (message_bytes > kMostHeadBytes || meta_bytes > kMostHeadBytes - message_bytes) {
    throw HostError(
        "a message of {} + {} bytes beside its tensors, where {} are the most; pass large data as "
        "tensors",
        message_bytes, meta_bytes, kMostHeadBytes);
  }
  return message_bytes + meta_bytes;
}

Outgoing outgoing(Message message) {
  Outgoing result{.message = std::move(message)};
  const TensorPayload* payload = tensors_of(result.message);
  if (payload == nullptr) return result;
  std::vector<at::Tensor> tensors = payload->tensors;
  for (at::Tensor& tensor : tensors) {
    if (tensor.is_cpu()) continue;
    tensor = tensor.detach().contiguous();
    result.on_device = true;
  }
  if (!result.on_device) return result;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_cpu()) result.made = cuda::StreamEvent::record(tensor.device());
  }
  result.message.payload = std::make_shared<TensorPayload>(std::move(tensors));
  return result;
}

std::vector<ByteChannel::Part> PackedMessage::parts() const {
  std::vector<ByteChannel::Part> parts{std::as_bytes(std::span(&frame, 1)),
                                       std::as_bytes(std::span(head))};
  for (const at::Tensor& tensor : tensors) {
    parts.emplace_back(static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes());
  }
  return parts;
}

PackedMessage pack(const Outgoing& outgoing, Apart apart, StagedCopies& copies) {
  const Message& message = outgoing.message;
  PackedMessage packed{.frame = {}, .head = message.bytes, .made = outgoing.made};
  uint32_t count = 0;
  if (const TensorPayload* payload = tensors_of(message)) {
    for (const at::Tensor& tensor : payload->tensors) {
      ++count;
      // The device is the one it was sent from; the receiver puts it on its own of that type.
      append_meta(packed.head, tensor);
      if (apart == tensor.device().type()) {
        packed.apart.push_back(tensor.detach().contiguous());
        continue;
      }
      packed.tensors.push_back(tensor.is_cpu() ? tensor.detach().contiguous()
                                               : copies.to(tensor, at::kCPU, outgoing.made));
    }
  }
  copies.wait();
  packed.frame = {.message_bytes = message.bytes.size(),
                  .meta_bytes = packed.head.size() - message.bytes.size(),
                  .tensors = count};
  if (!packed.apart.empty()) packed.frame.apart_device = static_cast<int16_t>(*apart);
  return packed;
}

ArrivingMessage::ArrivingMessage(const MessageFrame& frame, std::string head)
    : bytes_(std::move(head)) {
  SMP_CHECK(bytes_.size() == frame.head_bytes(), "a message's head of {} bytes, announced as {}",
            bytes_.size(), frame.head_bytes());
  std::string_view metas = std::string_view(bytes_).substr(frame.message_bytes);
  for (uint32_t index = 0; index < frame.tensors; ++index) {
    Received one{.tensor = {}, .meta = take_meta(metas)};
    if (static_cast<int16_t>(one.meta.device) != frame.apart_device) {
      one.tensor = empty_for(one.meta.sizes, one.meta.type, one.meta.device);
    }
    tensors_.push_back(std::move(one));
  }
  bytes_.resize(frame.message_bytes);
}

std::vector<ByteChannel::Room> ArrivingMessage::rooms() const {
  std::vector<ByteChannel::Room> rooms;
  for (const Received& one : tensors_) {
    if (!one.tensor.defined()) continue;
    rooms.emplace_back(static_cast<std::byte*>(one.tensor.data_ptr()), one.tensor.nbytes());
  }
  return rooms;
}

Message ArrivingMessage::finish(int cuda_device, StagedCopies& copies) && {
  std::vector<at::Tensor> values;
  for (Received& one : tensors_) {
    SMP_CHECK(one.tensor.defined(), "a tensor that did not come");
    const at::DeviceType type = one.meta.device;
    const at::Device device(type,
                            static_cast<c10::DeviceIndex>(type == at::kCPU ? -1 : cuda_device));
    values.push_back(one.tensor.device().type() == type ? std::move(one.tensor)
                                                        : copies.to(one.tensor, device));
  }
  copies.wait();  // so that what was received can be used again
  return {.bytes = std::move(bytes_),
          .payload = values.empty() ? nullptr : std::make_shared<TensorPayload>(std::move(values))};
}

}  // namespace smp::transport
