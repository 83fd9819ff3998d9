// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_ring.h"

#include <algorithm>
#include <cstring>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/transport/futex.h"

namespace smp::transport {
namespace {

/// Published at a time, so that the reader copies one piece while the writer copies the next.
constexpr uint32_t kPublishedBytes = SharedRing::kCapacity / 8;

}  // namespace

static_assert((SharedRing::kCapacity & (SharedRing::kCapacity - 1)) == 0, "the counts wrap");

/// Bytes written and read since the start; they wrap, their difference does not.
struct SharedRing::Head {
  alignas(kCacheLineBytes) std::atomic<uint32_t> written;
  std::atomic<uint32_t> reader_sleeps;
  alignas(kCacheLineBytes) std::atomic<uint32_t> read;
  std::atomic<uint32_t> writer_sleeps;
  alignas(kCacheLineBytes) std::atomic<uint32_t> credits;
};

size_t SharedRing::size_bytes() { return sizeof(Head) + kCapacity; }

SharedRing::SharedRing(std::byte* memory) : memory_(memory) {}

SharedRing::Head& SharedRing::head() const { return *reinterpret_cast<Head*>(memory_); }
std::byte* SharedRing::data() const { return memory_ + sizeof(Head); }

size_t SharedRing::room() const {
  return kCapacity - (head().written.load(std::memory_order_relaxed) - head().read.load());
}

size_t SharedRing::available() const {
  return head().written.load() - head().read.load(std::memory_order_relaxed);
}

size_t SharedRing::write_some(std::span<const std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const auto free = static_cast<uint32_t>(room());
    if (free == 0) break;
    const uint32_t written = head().written.load(std::memory_order_relaxed);
    const uint32_t at = written % kCapacity;
    const auto piece = static_cast<uint32_t>(std::min<size_t>(
        {bytes.size() - done, size_t{free}, size_t{kCapacity - at}, size_t{kPublishedBytes}}));
    std::memcpy(data() + at, bytes.data() + done, piece);
    done += piece;
    // In one order with the sleeper's flag and its last look: one of the two sees the other.
    head().written.store(written + piece);
    if (head().reader_sleeps.load() != 0) futex_wake(head().written);
  }
  return done;
}

size_t SharedRing::read_some(std::span<std::byte> bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const auto ready = static_cast<uint32_t>(available());
    if (ready == 0) break;
    const uint32_t read = head().read.load(std::memory_order_relaxed);
    const uint32_t at = read % kCapacity;
    const auto piece = static_cast<uint32_t>(std::min<size_t>(
        {bytes.size() - done, size_t{ready}, size_t{kCapacity - at}, size_t{kPublishedBytes}}));
    std::memcpy(bytes.data() + done, data() + at, piece);
    done += piece;
    head().read.store(read + piece);
    if (head().writer_sleeps.load() != 0) futex_wake(head().read);
  }
  return done;
}

void SharedRing::wait_for_room(std::chrono::microseconds longest) {
  head().writer_sleeps.store(1);
  const uint32_t seen = head().read.load();
  if (room() == 0) futex_wait(head().read, seen, longest);
  head().writer_sleeps.store(0);
}

void SharedRing::wait_for_bytes(std::chrono::microseconds longest) {
  head().reader_sleeps.store(1);
  const uint32_t seen = head().written.load();
  if (available() == 0) futex_wait(head().written, seen, longest);
  head().reader_sleeps.store(0);
}

void SharedRing::give_credit() {
  head().credits.fetch_add(1);
  futex_wake(head().credits);
}

uint32_t SharedRing::credits() const { return head().credits.load(); }

void SharedRing::wait_for_credit(uint32_t seen, std::chrono::microseconds longest) {
  futex_wait(head().credits, seen, longest);
}

void SharedRing::wake() {
  futex_wake(head().credits);
  futex_wake(head().written);
  futex_wake(head().read);
}

}  // namespace smp::transport
