// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/fabric_channel.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

constexpr size_t kFrameBytes = 4096;
constexpr size_t kRoom = kFrameBytes - sizeof(MessageFrame);

/// Interval of looks at what does not wake the link.
constexpr std::chrono::milliseconds kLookInterval{500};

using Buffer = std::vector<std::byte>;

/// An idle peer sends nothing: its next message is waited for without a limit.
WaitLimit no_limit() { return {.deadline = Clock::time_point::max(), .operation = "pipeline"}; }

/// Decides which tensors go with the frame, alike at both ends: those that still fit behind the
/// head.
class FrameRoom {
 public:
  explicit FrameRoom(size_t head_bytes) : left_(kRoom - std::min(head_bytes, kRoom)) {}

  bool takes(const at::Tensor& tensor) {
    if (tensor.nbytes() > left_) return false;
    left_ -= tensor.nbytes();
    return true;
  }

 private:
  size_t left_;
};

}  // namespace

FabricChannel::FabricChannel(FabricLink& link, const FailureDetector& detector, const Ends& ends)
    : link_(link), detector_(detector), ends_(ends) {
  post_frame_receive();
}

/// Networks keep no order and match by tags alone: these tell all apart that may be under way.
uint64_t FabricChannel::tag(Kind kind, int source, uint32_t sequence, size_t index) {
  SMP_CHECK(source < 1 << 12 && index < 1 << 16, "rank {}, tensor {} of a message", source, index);
  return static_cast<uint64_t>(kind) << 60 | static_cast<uint64_t>(source) << 48 |
         static_cast<uint64_t>(index) << 32 | sequence;
}

bool FabricChannel::send_at_once(const PackedMessage& message) {
  if (message.size_bytes() > kSmallBytes) return false;
  look();
  post(message);  // whether it arrives, the detector tells
  return true;
}

void FabricChannel::send(const PackedMessage& message) { wait(post(message), no_limit()); }

std::vector<FabricChannel::Handle> FabricChannel::post(const PackedMessage& message) {
  const uint32_t sequence = sent_++;
  const std::string_view head = std::string_view(message.head).substr(0, kRoom);
  const auto frame = std::make_shared<Buffer>();
  const auto append = [&](std::span<const std::byte> bytes) {
    frame->insert(frame->end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(&message.frame, 1)));
  append(std::as_bytes(std::span(head)));
  std::vector<size_t> outside;  // the frame
  FrameRoom room(message.head.size());
  for (size_t index = 0; index < message.tensors.size(); ++index) {
    const at::Tensor& tensor = message.tensors[index];
    if (room.takes(tensor)) {
      append(bytes_of(tensor));
    } else {
      outside.push_back(index);
    }
  }
  std::vector<Handle> handles;
  const auto send = [&](Kind kind, size_t index, std::span<const std::byte> bytes,
                        std::shared_ptr<void> keeps) {
    handles.push_back(
        link_.send(ends_.peer, tag(kind, ends_.rank, sequence, index), bytes, std::move(keeps)));
  };
  send(Kind::kFrame, 0, *frame, frame);
  if (head.size() < message.head.size()) {
    const auto rest = std::make_shared<std::string>(message.head.substr(head.size()));
    send(Kind::kRest, 0, std::as_bytes(std::span(*rest)), rest);
  }
  for (const size_t index : outside) {
    const at::Tensor& tensor = message.tensors[index];
    send(Kind::kTensor, index, bytes_of(tensor), std::make_shared<at::Tensor>(tensor));
  }
  return handles;
}

/// One frame ahead: what has a place to go to arrives sooner.
void FabricChannel::post_frame_receive() {
  frame_ = std::make_shared<Buffer>(kFrameBytes);
  frame_receive_ =
      link_.receive_up_to(ends_.peer, tag(Kind::kFrame, ends_.peer, received_++), *frame_, frame_);
}

std::optional<ArrivingMessage> FabricChannel::receive() {
  const uint32_t sequence = received_ - 1;
  wait(std::span(&frame_receive_, 1), no_limit());
  const std::shared_ptr<Buffer> buffer = frame_;
  std::span<const std::byte> bytes =
      std::span(*buffer).first(FabricLink::size_bytes(*frame_receive_));
  const auto take = [&](std::span<std::byte> target) {
    SMP_CHECK(bytes.size() >= target.size(), "a frame ends {} bytes early",
              target.size() - bytes.size());
    if (!target.empty()) std::memcpy(target.data(), bytes.data(), target.size());
    bytes = bytes.subspan(target.size());
  };
  MessageFrame frame;
  take(std::as_writable_bytes(std::span(&frame, 1)));
  if (frame.fin != 0) return std::nullopt;
  post_frame_receive();

  std::string head(std::min(frame.head_bytes(), kRoom), '\0');
  take(std::as_writable_bytes(std::span(head)));
  if (head.size() < frame.head_bytes()) {
    const auto rest = std::make_shared<std::string>(frame.head_bytes() - head.size(), '\0');
    const Handle handle = link_.receive(ends_.peer, tag(Kind::kRest, ends_.peer, sequence),
                                        std::as_writable_bytes(std::span(*rest)), 0, rest);
    wait(std::span(&handle, 1), no_limit());
    head += *rest;
  }
  FrameRoom room(head.size());
  ArrivingMessage message(frame, std::move(head));
  std::vector<Handle> handles;
  size_t next = 0;
  for (const Received& one : message.tensors()) {
    const at::Tensor& tensor = one.tensor;
    if (!tensor.defined()) continue;  // it comes apart: the sender counts those with the frame
    const size_t index = next++;
    if (room.takes(tensor)) {
      take(writable_bytes_of(tensor));
      continue;
    }
    handles.push_back(link_.receive(ends_.peer, tag(Kind::kTensor, ends_.peer, sequence, index),
                                    writable_bytes_of(tensor), 0,
                                    std::make_shared<at::Tensor>(tensor)));
  }
  wait(handles, no_limit());
  return message;
}

void FabricChannel::give_credit() {
  const auto byte = std::make_shared<Buffer>(1);
  link_.send(ends_.peer, tag(Kind::kCredit, ends_.rank, given_++), *byte, byte);
}

void FabricChannel::await_credit(const WaitLimit& limit) {
  const auto byte = std::make_shared<Buffer>(1);
  const Handle handle =
      link_.receive(ends_.peer, tag(Kind::kCredit, ends_.peer, awaited_++), *byte, 0, byte);
  wait(std::span(&handle, 1), limit);
}

void FabricChannel::wait(std::span<const Handle> messages, const WaitLimit& limit) {
  try {
    link_.wait(
        messages, limit, [this] { look(); }, kLookInterval);
  } catch (const HostError&) {
    look();  // the detector knows better why a message failed
    throw;
  }
}

void FabricChannel::look() const {
  if (aborted_.load()) throw HostError("closed");
  if (const std::string problem = detector_.failure_of(ends_.peer); !problem.empty()) {
    throw HostError(problem);
  }
}

void FabricChannel::abort() {
  aborted_.store(true);
  link_.wake();
}

}  // namespace smp::transport
