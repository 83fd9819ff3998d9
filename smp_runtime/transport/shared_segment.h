// SPDX-License-Identifier: Apache-2.0
// Memory that the ranks of one host share: for each a count of steps, two mailboxes, and buffers
// for data.
//
// All ranks walk through the same sequence of steps. A rank writes into its own mailbox or buffer,
// then publishes the step; whoever has waited for that step of a rank may read what it wrote. When
// a buffer may be written again is the business of the algorithm (smddp/collectives/intra_node.h).
// It has no frames and no rings, since the number of the step says what lies where, and one store
// publishes a mailbox to all ranks at once.
//
// A segment is broken for good by abort(), by the end of a rank's process, and by a wait that
// outlasts its limit: every rank's next wait throws the reason of the first to notice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/transport/process_watch.h"
#include "smp_runtime/transport/shared_memory.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// Sizes, equal on all ranks. Bytes are rounded up to whole cache lines.
struct SegmentShape {
  int ranks = 1;    ///< of this host
  int writers = 1;  ///< who have mailboxes: the ranks, and those of other hosts by proxy
  size_t mailbox_bytes = 64;
  size_t buffer_bytes = 64;  ///< of one of the kBuffers of a rank

  bool operator==(const SegmentShape&) const = default;
};

/// State of a rank: here, left in good order, or its process has ended without that.
enum class Presence { kHere, kLeft, kEnded };

/// One rank's end. Steps and waits belong to one thread at a time; abort() and the functions that
/// throw may be used from any.
class SharedSegment {
 public:
  static constexpr int kBuffers = 12;
  static constexpr int kMailboxes = 2;

  [[nodiscard]] static size_t size_bytes(const SegmentShape& shape);

  /// `memory` is zeroed memory of that size, shared by all; `names` are the numbers by which
  /// messages call the ranks. The segment is usable once all have come to `join`.
  SharedSegment(std::shared_ptr<SharedMemory> memory, const SegmentShape& shape, int rank,
                std::vector<int> names);
  /// Tells the others that this rank has left. In a forked child it does nothing.
  ~SharedSegment();
  SharedSegment(const SharedSegment&) = delete;
  SharedSegment& operator=(const SharedSegment&) = delete;

  /// Waits until all ranks are here and watches their processes from then on. Calls `look`, which
  /// may throw, from time to time.
  void join(const WaitLimit& limit, const std::function<void()>& look = {});

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int ranks() const { return shape_.ranks; }
  [[nodiscard]] const SegmentShape& shape() const { return shape_; }
  [[nodiscard]] int name(int rank) const { return names_[static_cast<size_t>(rank)]; }

  /// Ends this rank's current step and returns its number.
  uint32_t publish();
  /// Waits until all ranks have published `step`. Throws HostError: see above.
  void wait_for_all(uint32_t step, const WaitLimit& limit);
  void wait_for(int rank, uint32_t step, const WaitLimit& limit);

  [[nodiscard]] std::byte* mailbox(int writer, size_t number) const;
  [[nodiscard]] std::byte* buffer(int rank, size_t number) const;

  /// Breaks the segment; the first reason counts.
  void abort(std::string_view reason);
  /// Throws HostError with the reason if the segment is broken. Cheap.
  void throw_if_aborted() const;
  /// Breaks the segment and throws if a rank's process has ended or, unless `rank` may still be
  /// read from, has left. One system call a rank.
  void throw_if_ended(int rank, const WaitLimit& limit);
  /// One system call at most.
  [[nodiscard]] Presence presence(int rank) const;
  /// End or leaving of a rank, for a message; empty while it is there.
  [[nodiscard]] std::string end_of(int rank) const;
  /// Records, for this host's ranks, that a writer of another host has left.
  void note_left(int writer);
  [[nodiscard]] bool has_left(int writer) const;
  /// The same as throw_if_ended() for all of them, but this one.
  void throw_if_any_ended(const WaitLimit& limit);
  /// The memory of the segment, for those who must tell a device of it.
  [[nodiscard]] std::span<std::byte> memory() const;

 private:
  struct Head;
  struct Cell;

  [[nodiscard]] Head& head() const;
  [[nodiscard]] Cell& cell(int rank) const;
  [[nodiscard]] std::atomic<uint32_t>& left(int writer) const;
  [[noreturn]] void fail(const std::string& reason);
  [[noreturn]] void fail_late(uint32_t step, const WaitLimit& limit);
  void wait_slowly(int rank, uint32_t step, const WaitLimit& limit,
                   const std::function<void()>& look = {});

  std::shared_ptr<SharedMemory> memory_;
  SegmentShape shape_;
  int rank_;
  std::vector<int> names_;
  std::vector<ProcessWatch> watches_;
  int spins_;
  int process_;
};

}  // namespace smp::transport
