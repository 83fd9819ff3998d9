// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/c10d_wire.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

constexpr size_t kFrameBytes = 2048;
constexpr size_t kRoom = kFrameBytes - sizeof(MessageFrame);
enum Tag : int { kFrameTag = 1, kRestTag = 2, kTensorTag = 3, kCreditTag = 4 };

at::Tensor new_bytes(size_t count) { return at::empty({static_cast<int64_t>(count)}, at::kByte); }

/// Gloo knows few types; bytes are all it needs to know here. The view keeps the tensor alive.
at::Tensor as_bytes(const at::Tensor& tensor) {
  return at::from_blob(
      tensor.data_ptr(), {static_cast<int64_t>(tensor.nbytes())}, [tensor](void*) {}, at::kByte);
}

}  // namespace

bool C10dWire::send_at_once(const PackedMessage&) { return false; }

void C10dWire::send(const PackedMessage& message) {
  send_frame(message);
  for (const at::Tensor& tensor : message.tensors) {
    if (tensor.numel() > 0) send_tensor(as_bytes(tensor), kTensorTag);
  }
}

void C10dWire::send_frame(const PackedMessage& message) {
  at::Tensor buffer = new_bytes(kFrameBytes);
  auto* data = static_cast<char*>(buffer.data_ptr());
  const std::string& head = message.head;
  const size_t inside = std::min(head.size(), kRoom);
  std::memcpy(data, &message.frame, sizeof(MessageFrame));
  std::memcpy(data + sizeof(MessageFrame), head.data(), inside);
  std::memset(data + sizeof(MessageFrame) + inside, 0, kRoom - inside);
  send_tensor(std::move(buffer), kFrameTag);
  if (inside == head.size()) return;
  at::Tensor rest = new_bytes(head.size() - inside);
  std::memcpy(rest.data_ptr(), head.data() + inside, head.size() - inside);
  send_tensor(std::move(rest), kRestTag);
}

std::optional<ArrivingMessage> C10dWire::receive() {
  const at::Tensor buffer = new_bytes(kFrameBytes);
  receive_tensor(buffer, kFrameTag);
  const auto* data = static_cast<const char*>(buffer.data_ptr());
  MessageFrame frame;
  std::memcpy(&frame, data, sizeof(frame));
  if (frame.fin != 0) return std::nullopt;
  const size_t inside = std::min(frame.head_bytes(), kRoom);
  std::string head(data + sizeof(frame), inside);
  if (inside < frame.head_bytes()) {
    const at::Tensor rest = new_bytes(frame.head_bytes() - inside);
    receive_tensor(rest, kRestTag);
    head.append(static_cast<const char*>(rest.data_ptr()), rest.nbytes());
  }
  ArrivingMessage message(frame, std::move(head));
  for (const Received& one : message.tensors()) {
    if (one.tensor.defined() && one.tensor.numel() > 0)
      receive_tensor(as_bytes(one.tensor), kTensorTag);
  }
  return message;
}

void C10dWire::send_tensor(at::Tensor tensor, int tag) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  wait_for(pending_send_, backend_.send(tensors, peer_, tag));
}

void C10dWire::receive_tensor(at::Tensor tensor, int tag) {
  std::vector<at::Tensor> tensors{std::move(tensor)};
  wait_for(pending_receive_, backend_.recv(tensors, peer_, tag));
}

void C10dWire::give_credit() {
  while (!credits_.empty() && credits_.front()->isCompleted()) credits_.pop_front();
  std::vector<at::Tensor> word{new_bytes(1)};
  static_cast<char*>(word[0].data_ptr())[0] = 1;
  const std::lock_guard lock(mutex_);
  if (aborted_) throw HostError("closed");
  credits_.push_back(backend_.send(word, peer_, kCreditTag));  // the work keeps the tensor
}

void C10dWire::await_credit(const WaitLimit& limit) {
  std::vector<at::Tensor> word{new_bytes(1)};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(limit.deadline - Clock::now());
  wait_for(pending_credit_, backend_.recv(word, peer_, kCreditTag),
           std::max(left, std::chrono::milliseconds(1)));
}

/// Keeps the operation where abort() finds it.
void C10dWire::wait_for(Work& pending, Work work, std::chrono::milliseconds timeout) {
  {
    const std::lock_guard lock(mutex_);
    if (aborted_) throw HostError("closed");
    pending = work;
  }
  const bool done = work->wait(timeout);
  const std::lock_guard lock(mutex_);
  pending.reset();
  if (!done) throw HostError("closed");
}

void C10dWire::abort() {
  const std::lock_guard lock(mutex_);
  aborted_ = true;
  if (pending_send_) pending_send_->abort();
  if (pending_receive_) pending_receive_->abort();
  if (pending_credit_) pending_credit_->abort();
}

}  // namespace smp::transport
