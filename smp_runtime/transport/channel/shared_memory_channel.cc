// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/shared_memory_channel.h"

#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

/// Interval in which a waiting thread looks whether the peer has died.
constexpr std::chrono::milliseconds kWatchInterval{100};

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::span<const std::byte> bytes_of(const MessageFrame& frame) {
  return std::as_bytes(std::span(&frame, 1));
}

}  // namespace

SharedMemoryChannel::SharedMemoryChannel(Rings rings, pid_t peer_process)
    : rings_(std::move(rings)), peer_process_(peer_process), peer_watch_(peer_process) {}

bool SharedMemoryChannel::send_at_once(const PackedMessage& message) {
  const size_t size = message.size_bytes();
  if (size > kSmallBytes || size > rings_.outward.room()) return false;
  // In one piece, so that the reader wakes once.
  thread_local std::string whole;
  whole.clear();
  const auto append = [](std::span<const std::byte> bytes) {
    whole.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  append(bytes_of(message.frame));
  append(bytes_of(message.head));
  for (const at::Tensor& tensor : message.tensors) append(bytes_of(tensor));
  rings_.outward.write_some(bytes_of(whole));
  return true;
}

void SharedMemoryChannel::send(const PackedMessage& message) {
  if (send_at_once(message)) return;
  write(bytes_of(message.frame));
  write(bytes_of(message.head));
  for (const at::Tensor& tensor : message.tensors) write(bytes_of(tensor));
}

std::optional<ArrivingMessage> SharedMemoryChannel::receive() {
  MessageFrame frame;
  read(std::as_writable_bytes(std::span(&frame, 1)));
  if (frame.fin != 0) return std::nullopt;
  std::string head(frame.head_bytes(), '\0');
  read(std::as_writable_bytes(std::span(head)));
  ArrivingMessage message(frame, std::move(head));
  for (Received& one : message.tensors()) {
    if (!one.tensor.defined()) continue;  // it comes apart
    read(writable_bytes_of(one.tensor));
  }
  return message;
}

void SharedMemoryChannel::write(std::span<const std::byte> bytes) {
  SharedRing& ring = rings_.outward;
  while (true) {
    bytes = bytes.subspan(ring.write_some(bytes));
    if (bytes.empty()) return;
    throw_if_aborted();
    ring.wait_for_room(kWatchInterval);
    if (ring.room() == 0 && peer_watch_.has_ended()) throw_ended();
  }
}

void SharedMemoryChannel::read(std::span<std::byte> bytes) {
  SharedRing& ring = rings_.inward;
  while (true) {
    bytes = bytes.subspan(ring.read_some(bytes));
    if (bytes.empty()) return;
    throw_if_aborted();
    ring.wait_for_bytes(kWatchInterval);
    // Looked at once more after its end: what it wrote before is in the ring by then.
    const bool ended = ring.available() == 0 && peer_watch_.has_ended();
    if (ended && ring.available() == 0) throw_ended();
  }
}

void SharedMemoryChannel::await_credit(const WaitLimit& limit) {
  SharedRing& ring = rings_.outward;
  while (ring.credits() == taken_credits_) {
    throw_if_aborted();
    if (Clock::now() > limit.deadline) {
      throw HostError("{}: it took no notice for {} ms; is its process stopped?", limit.operation,
                      limit.timeout.count());
    }
    ring.wait_for_credit(taken_credits_, kWatchInterval);
    if (ring.credits() == taken_credits_ && peer_watch_.has_ended()) throw_ended();
  }
  ++taken_credits_;
}

void SharedMemoryChannel::throw_if_aborted() const {
  if (aborted_.load()) throw HostError("closed");
}

void SharedMemoryChannel::throw_ended() const {
  throw HostError("its process (pid {} on this host) has ended; see its output", peer_process_);
}

void SharedMemoryChannel::abort() {
  aborted_.store(true);
  rings_.inward.wake();
  rings_.outward.wake();
}

}  // namespace smp::transport
