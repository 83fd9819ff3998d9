// SPDX-License-Identifier: Apache-2.0
// A stream of bytes from one process to another through shared memory.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace smp::transport {

/// The two counts of a ring, on cache lines of their own; zero is empty.
struct RingCounts {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> read;
};

/// A view: copying it copies no data. One thread writes and one reads, without locks or waiting.
class ByteRing {
 public:
  /// `capacity` is a power of two.
  ByteRing(RingCounts* counts, std::byte* bytes, size_t capacity)
      : counts_(counts), bytes_(bytes), capacity_(capacity) {}

  /// Takes as many of the bytes as there is room for; says how many.
  size_t write(std::span<const std::byte> bytes) {
    const uint64_t written = counts_->written.load(std::memory_order_relaxed);
    const uint64_t room = capacity_ - (written - counts_->read.load(std::memory_order_acquire));
    const size_t count = std::min<size_t>(bytes.size(), room);
    const size_t start = static_cast<size_t>(written) & (capacity_ - 1);
    const size_t first = std::min(count, capacity_ - start);
    if (count == 0) return 0;
    std::memcpy(bytes_ + start, bytes.data(), first);
    std::memcpy(bytes_, bytes.data() + first, count - first);
    counts_->written.store(written + count, std::memory_order_release);
    return count;
  }

  /// Fills as much of `bytes` as has arrived; says how much.
  size_t read(std::span<std::byte> bytes) {
    const uint64_t read = counts_->read.load(std::memory_order_relaxed);
    const uint64_t there = counts_->written.load(std::memory_order_acquire) - read;
    const size_t count = std::min<size_t>(bytes.size(), there);
    const size_t start = static_cast<size_t>(read) & (capacity_ - 1);
    const size_t first = std::min(count, capacity_ - start);
    if (count == 0) return 0;
    std::memcpy(bytes.data(), bytes_ + start, first);
    std::memcpy(bytes.data() + first, bytes_, count - first);
    counts_->read.store(read + count, std::memory_order_release);
    return count;
  }

 private:
  RingCounts* counts_;
  std::byte* bytes_;
  size_t capacity_;
};

}  // namespace smp::transport
