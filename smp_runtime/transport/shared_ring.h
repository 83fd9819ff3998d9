// SPDX-License-Identifier: Apache-2.0
// A stream of bytes from one process to another of its host, through memory that both map.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace smp::transport {

/// One end of a ring: one thread at a time writes, one at a time reads, in any two processes.
/// The ring does not notice that the other end's process is gone (ProcessWatch does).
class SharedRing {
 public:
  /// Fits the second-level cache: what was just written is read from there.
  static constexpr uint32_t kCapacity = 1 << 20;
  /// Size of the memory. Pages cost once they are touched.
  [[nodiscard]] static size_t size_bytes();

  /// `memory` is a cache line's multiple, of size_bytes(), zeroed before the first end was made.
  explicit SharedRing(std::byte* memory);

  /// Copies what fits, up to all, and returns how many bytes that was. Do not wait.
  size_t write_some(std::span<const std::byte> bytes);
  size_t read_some(std::span<std::byte> bytes);

  /// Bytes that can be written, or read, now.
  [[nodiscard]] size_t room() const;
  [[nodiscard]] size_t available() const;

  /// Return when there is any, after `longest`, on wake(), or early.
  void wait_for_room(std::chrono::microseconds longest);
  void wait_for_bytes(std::chrono::microseconds longest);
  /// Flow-control credit from the reader to the writer, who know for what.
  void give_credit();
  /// Number of credits that were given; wraps.
  [[nodiscard]] uint32_t credits() const;
  /// Returns when there are others than `seen`, after `longest`, on wake(), or early.
  void wait_for_credit(uint32_t seen, std::chrono::microseconds longest);

  /// Ends the waits of both ends.
  void wake();

 private:
  struct Head;

  [[nodiscard]] Head& head() const;
  [[nodiscard]] std::byte* data() const;

  std::byte* memory_;
};

}  // namespace smp::transport
