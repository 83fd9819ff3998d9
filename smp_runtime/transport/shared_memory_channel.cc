// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_memory_channel.h"

#include <array>
#include <chrono>
#include <cstring>
#include <utility>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::transport {
namespace {

/// Interval in which a waiting thread looks whether the peer has died.
constexpr std::chrono::milliseconds kPeerWatchInterval{100};

/// A rank's description of itself to the others.
struct PeerInfo {
  std::array<char, 128> host{};
  std::array<char, 64> address{};  ///< of its memory: the rings into which the others write
  int32_t process = 0;
};

std::shared_ptr<SharedMemory> open_quietly(const PeerInfo& info, size_t bytes) {
  try {
    const size_t length = strnlen(info.address.data(), info.address.size());
    return std::make_shared<SharedMemory>(SharedMemory::open({info.address.data(), length}, bytes));
  } catch (const HostError& error) {
    SMP_LOG(warning, "messages to and from process {} of this host go over the network: {}",
            info.process, error.what());
    return nullptr;
  }
}

SharedRing ring_at(const SharedMemoryChannel::Place& place) {
  return SharedRing(place.memory->data() + SharedMemoryChannel::memory_bytes(place.ring));
}

}  // namespace

SharedMemoryChannel::SharedMemoryChannel(const Place& inward, const Place& outward,
                                         pid_t peer_process)
    : inward_memory_(inward.memory),
      outward_memory_(outward.memory),
      inward_(ring_at(inward)),
      outward_(ring_at(outward)),
      peer_process_(peer_process),
      peer_watch_(peer_process) {}

bool SharedMemoryChannel::send_at_once(std::span<const Part> message, const Owner& /*owner*/) {
  const size_t size = size_bytes(message);
  if (size > kSmallBytes || size > outward_.room()) return false;
  // In one piece, so that the reader wakes once.
  thread_local std::vector<std::byte> whole;
  whole.clear();
  for (const Part& part : message) whole.insert(whole.end(), part.begin(), part.end());
  outward_.write_some(whole);
  return true;
}

void SharedMemoryChannel::send(std::span<const Part> message, const Owner& owner) {
  if (send_at_once(message, owner)) return;
  for (const Part& part : message) write(part);
}

void SharedMemoryChannel::receive(std::span<const Room> parts, const Owner& /*owner*/) {
  for (const Room& part : parts) read(part);
}

void SharedMemoryChannel::write(Part bytes) {
  while (true) {
    bytes = bytes.subspan(outward_.write_some(bytes));
    if (bytes.empty()) return;
    throw_if_aborted();
    outward_.wait_for_room(kPeerWatchInterval);
    if (outward_.room() == 0 && peer_watch_.has_ended()) throw_ended();
  }
}

void SharedMemoryChannel::read(Room bytes) {
  while (true) {
    bytes = bytes.subspan(inward_.read_some(bytes));
    if (bytes.empty()) return;
    throw_if_aborted();
    inward_.wait_for_bytes(kPeerWatchInterval);
    // Looked at once more after its end: what it wrote before is in the ring by then.
    const bool ended = inward_.available() == 0 && peer_watch_.has_ended();
    if (ended && inward_.available() == 0) throw_ended();
  }
}

void SharedMemoryChannel::await_credit(const WaitLimit& limit) {
  while (outward_.credits() == taken_credits_) {
    throw_if_aborted();
    if (Clock::now() > limit.deadline) {
      throw HostError("{}: it took no notice for {} ms; is its process stopped?", limit.operation,
                      limit.timeout.count());
    }
    outward_.wait_for_credit(taken_credits_, kPeerWatchInterval);
    if (outward_.credits() == taken_credits_ && peer_watch_.has_ended()) throw_ended();
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
  inward_.wake();
  outward_.wake();
}

std::vector<std::unique_ptr<ByteChannel>> connect_shared_memory(const StoreGather& group) {
  const auto rank = static_cast<size_t>(group.rank);
  const auto size = static_cast<size_t>(group.size);
  const size_t bytes = SharedMemoryChannel::memory_bytes(size);
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create(bytes));
  PeerInfo mine{.process = getpid()};
  put(mine.host, host_identity());
  put(mine.address, memory->address());
  const std::vector<PeerInfo> infos =
      group.gather_values("memory", std::span<const PeerInfo>(&mine, 1));

  std::vector<std::shared_ptr<SharedMemory>> theirs(size);
  std::vector<uint8_t> opened(size, 0);
  for (size_t peer = 0; peer < size; ++peer) {
    if (peer == rank || infos[peer].host != mine.host) continue;
    theirs[peer] = open_quietly(infos[peer], bytes);
    opened[peer] = theirs[peer] ? 1 : 0;
  }
  // A pair uses its rings only when both can.
  const std::vector<uint8_t> matrix =
      group.gather_values("opened", std::span<const uint8_t>(opened));
  memory->close_address();

  std::vector<std::unique_ptr<ByteChannel>> channels(size);
  for (size_t peer = 0; peer < size; ++peer) {
    if (!theirs[peer] || matrix[peer * size + rank] == 0) continue;
    channels[peer] = std::make_unique<SharedMemoryChannel>(
        SharedMemoryChannel::Place{.memory = memory, .ring = peer},
        SharedMemoryChannel::Place{.memory = theirs[peer], .ring = rank}, infos[peer].process);
  }
  return channels;
}

}  // namespace smp::transport
