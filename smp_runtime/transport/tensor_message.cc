// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/tensor_message.h"

#include <memory>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/tensor_payload.h"

namespace smp::transport {

size_t PackedMessage::size_bytes() const {
  size_t bytes = sizeof(frame) + head.size();
  for (const at::Tensor& tensor : tensors) bytes += tensor.nbytes();
  return bytes;
}

PackedMessage pack(const Message& message) {
  PackedMessage packed{.frame = {}, .head = message.bytes, .tensors = {}};
  if (message.payload) {
    const auto* payload = dynamic_cast<const TensorPayload*>(message.payload.get());
    SMP_CHECK(payload != nullptr, "a payload that holds no tensors");
    for (const at::Tensor& tensor : payload->tensors) {
      packed.tensors.push_back(tensor.detach().cpu().contiguous());
      // The device is the one it was sent from; the receiver puts it on its own of that type.
      append_meta(packed.head, tensor);
    }
  }
  packed.frame = {.message_bytes = message.bytes.size(),
                  .meta_bytes = packed.head.size() - message.bytes.size(),
                  .tensors = static_cast<uint32_t>(packed.tensors.size()),
                  .goodbye = 0};
  return packed;
}

PackedMessage goodbye() {
  return {.frame = {.message_bytes = 0, .meta_bytes = 0, .tensors = 0, .goodbye = 1},
          .head = {},
          .tensors = {}};
}

ArrivingMessage::ArrivingMessage(const MessageFrame& frame, std::string head)
    : bytes_(std::move(head)) {
  SMP_CHECK(bytes_.size() == frame.head_bytes(), "a message's head of {} bytes, announced as {}",
            bytes_.size(), frame.head_bytes());
  std::string_view metas = std::string_view(bytes_).substr(frame.message_bytes);
  for (uint32_t index = 0; index < frame.tensors; ++index) {
    tensors_.push_back(allocate_from_meta(metas));
  }
  bytes_.resize(frame.message_bytes);
}

Message ArrivingMessage::finish(int source, int cuda_device) && {
  std::vector<at::Tensor> values;
  for (Received& one : tensors_) {
    const at::Device device(one.device, static_cast<c10::DeviceIndex>(cuda_device));
    values.push_back(one.device == at::kCPU ? std::move(one.tensor) : one.tensor.to(device));
  }
  return {.source = source,
          .bytes = std::move(bytes_),
          .payload = values.empty() ? nullptr : std::make_shared<TensorPayload>(std::move(values))};
}

}  // namespace smp::transport
