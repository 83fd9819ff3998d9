// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/shared_segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/futex.h"

namespace smp::transport {
namespace {

using std::chrono::microseconds;

constexpr size_t kReasonBytes = 2048;
/// A waiting rank looks this often whether a peer has died.
constexpr microseconds kWatchInterval{20'000};
/// Tries before sleeping: with a CPU for each rank, spinning beats a system call.
constexpr int kSpins = 2000;
/// And yields: tens of microseconds. A core that has gone to sleep takes as long to wake on a
/// virtual machine, for every chunk of every rank.
constexpr int kYields = 100;

enum RankState : uint32_t { kAbsent = 0, kHere = 1, kLeft = 2 };
enum AbortState : uint32_t { kWhole = 0, kWriting = 1, kBroken = 2 };

/// Leaves the core's units to its other thread for a moment.
void pause_spin() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Counts may wrap; no two ranks are ever two thousand million steps apart.
bool reached(uint32_t now, uint32_t step) { return static_cast<int32_t>(now - step) >= 0; }

int available_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

struct alignas(kCacheLineBytes) SharedSegment::Head {
  std::atomic<uint32_t> state;  // AbortState
  std::array<char, kReasonBytes> reason;
};

struct SharedSegment::Cell {
  alignas(kCacheLineBytes) std::atomic<uint32_t> step;
  std::atomic<uint32_t> waiters;  // asleep on `step`
  std::atomic<uint32_t> state;    // RankState
  std::atomic<int32_t> process;
};

namespace {

/// Offsets of a segment's parts, in bytes from its start.
struct SegmentOffsets {
  size_t cells;
  size_t left;
  size_t mailboxes;
  size_t buffers;
  size_t end;

  SegmentOffsets(const SegmentShape& shape, size_t head_bytes, size_t cell_bytes) {
    const auto ranks = static_cast<size_t>(shape.ranks);
    const auto writers = static_cast<size_t>(shape.writers);
    constexpr size_t kPage = 4096;
    const auto pages = [](size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; };
    cells = head_bytes;
    left = cells + ranks * cell_bytes;
    mailboxes = pages(left + writers * sizeof(uint32_t));
    buffers = pages(mailboxes +
                    writers * SharedSegment::kMailboxes * whole_cache_lines(shape.mailbox_bytes));
    end = pages(buffers + ranks * SharedSegment::kBuffers * whole_cache_lines(shape.buffer_bytes));
  }
};

}  // namespace

size_t SharedSegment::size_bytes(const SegmentShape& shape) {
  return SegmentOffsets(shape, sizeof(Head), sizeof(Cell)).end;
}

SharedSegment::SharedSegment(std::shared_ptr<SharedMemory> memory, const SegmentShape& shape,
                             int rank, std::vector<int> names)
    : memory_(std::move(memory)),
      shape_(shape),
      rank_(rank),
      names_(std::move(names)),
      spins_(available_cpus() >= shape.ranks ? kSpins : 0),
      process_(getpid()) {
  SMP_CHECK(memory_->size_bytes() == size_bytes(shape), "the memory does not fit the segment");
  SMP_CHECK(rank >= 0 && rank < shape.ranks, "rank {} of {}", rank, shape.ranks);
  SMP_CHECK(names_.size() == static_cast<size_t>(shape.ranks), "{} names", names_.size());
  cell(rank_).process.store(process_);
  cell(rank_).state.store(kHere);
}

SharedSegment::~SharedSegment() {
  if (getpid() != process_) return;
  cell(rank_).state.store(kLeft);
  for (int peer = 0; peer < ranks(); ++peer) futex_wake(cell(peer).step);
}

SharedSegment::Head& SharedSegment::head() const {
  return *reinterpret_cast<Head*>(memory_->data());
}

SharedSegment::Cell& SharedSegment::cell(int rank) const {
  const SegmentOffsets offsets(shape_, sizeof(Head), sizeof(Cell));
  return reinterpret_cast<Cell*>(memory_->data() + offsets.cells)[rank];
}

std::atomic<uint32_t>& SharedSegment::left(int writer) const {
  const SegmentOffsets offsets(shape_, sizeof(Head), sizeof(Cell));
  return reinterpret_cast<std::atomic<uint32_t>*>(memory_->data() + offsets.left)[writer];
}

std::byte* SharedSegment::mailbox(int writer, size_t number) const {
  const SegmentOffsets offsets(shape_, sizeof(Head), sizeof(Cell));
  return memory_->data() + offsets.mailboxes +
         (static_cast<size_t>(writer) * kMailboxes + number % kMailboxes) *
             whole_cache_lines(shape_.mailbox_bytes);
}

std::byte* SharedSegment::buffer(int rank, size_t number) const {
  const SegmentOffsets offsets(shape_, sizeof(Head), sizeof(Cell));
  return memory_->data() + offsets.buffers +
         (static_cast<size_t>(rank) * kBuffers + number % kBuffers) *
             whole_cache_lines(shape_.buffer_bytes);
}

void SharedSegment::join(const WaitLimit& limit, const std::function<void()>& look) {
  const uint32_t step = publish();
  for (int peer = 0; peer < ranks(); ++peer) wait_slowly(peer, step, limit, look);
  for (int peer = 0; peer < ranks(); ++peer) watches_.emplace_back(cell(peer).process.load());
}

uint32_t SharedSegment::publish() {
  Cell& mine = cell(rank_);
  const uint32_t step = mine.step.fetch_add(1) + 1;
  if (mine.waiters.load() != 0) futex_wake(mine.step);
  return step;
}

void SharedSegment::wait_for_all(uint32_t step, const WaitLimit& limit) {
  // The next rank first: ranks that look at the same cell at once slow each other.
  for (int distance = 1; distance < ranks(); ++distance) {
    wait_for((rank_ + distance) % ranks(), step, limit);
  }
}

void SharedSegment::wait_for(int rank, uint32_t step, const WaitLimit& limit) {
  const std::atomic<uint32_t>& theirs = cell(rank).step;
  for (int turn = 0; turn <= spins_; ++turn) {
    if (reached(theirs.load(std::memory_order_acquire), step)) return;
    pause_spin();
  }
  for (int turn = 0; turn < kYields; ++turn) {
    sched_yield();
    if (reached(theirs.load(std::memory_order_acquire), step)) return;
  }
  wait_slowly(rank, step, limit);
}

void SharedSegment::wait_slowly(int rank, uint32_t step, const WaitLimit& limit,
                                const std::function<void()>& look) {
  Cell& theirs = cell(rank);
  auto next_look = Clock::now() + kWatchInterval;
  while (true) {
    const uint32_t seen = theirs.step.load();
    if (reached(seen, step)) return;
    throw_if_aborted();
    const auto now = Clock::now();
    if (now >= limit.deadline) fail_late(step, limit);
    if (look) look();
    if (now >= next_look || theirs.state.load() == kLeft) {
      for (int peer = 0; peer < ranks(); ++peer) {
        // A rank that has published the step is not missed, however it ended.
        if (!reached(cell(peer).step.load(), step)) throw_if_ended(peer, limit);
      }
      limit.look();
      next_look = now + kWatchInterval;
    }
    const auto left = std::chrono::duration_cast<microseconds>(limit.deadline - now);
    theirs.waiters.fetch_add(1);
    if (theirs.step.load() == seen) {
      futex_wait(theirs.step, seen, std::clamp(left, microseconds(1), kWatchInterval));
    }
    theirs.waiters.fetch_sub(1);
  }
}

void SharedSegment::throw_if_ended(int rank, const WaitLimit& limit) {
  // Looked at first: what a rank published before it left is in its step by then.
  const uint32_t before = cell(rank).step.load();
  const bool left = cell(rank).state.load() == kLeft;
  const bool ended = !watches_.empty() && watches_[static_cast<size_t>(rank)].has_ended();
  if ((!left && !ended) || cell(rank).step.load() != before) return;
  if (left) {
    fail(fmt::format(
        "{}: rank {} has left the group; do all ranks make the same calls before they end?",
        limit.operation, name(rank)));
  }
  fail(fmt::format("{}: the process of rank {} (pid {} on this host) has ended; see its output",
                   limit.operation, name(rank), cell(rank).process.load()));
}

void SharedSegment::fail_late(uint32_t step, const WaitLimit& limit) {
  std::vector<int> missing;
  for (int peer = 0; peer < ranks(); ++peer) {
    if (!reached(cell(peer).step.load(), step)) missing.push_back(name(peer));
  }
  fail(fmt::format(
      "{}: rank {} waited {} ms for rank(s) {}, which did not take part; do all ranks of the group "
      "make the same calls in the same order, and is the timeout long enough?",
      limit.operation, name(rank_), limit.timeout.count(), fmt::join(missing, ", ")));
}

void SharedSegment::fail(const std::string& reason) {
  abort(reason);
  throw_if_aborted();
  throw HostError(reason);  // another rank is just writing its reason
}

void SharedSegment::abort(std::string_view reason) {
  uint32_t whole = kWhole;
  if (!head().state.compare_exchange_strong(whole, kWriting)) return;
  const size_t length = std::min(reason.size(), kReasonBytes - 1);
  std::memcpy(head().reason.data(), reason.data(), length);
  head().reason[length] = '\0';
  head().state.store(kBroken);
  for (int peer = 0; peer < ranks(); ++peer) futex_wake(cell(peer).step);
}

void SharedSegment::throw_if_aborted() const {
  if (head().state.load(std::memory_order_acquire) == kBroken) {
    throw HostError(std::string(head().reason.data()));
  }
}

Presence SharedSegment::presence(int rank) const {
  // The end is looked at first: a process that has ended cannot leave any more.
  const bool ended = !watches_.empty() && watches_[static_cast<size_t>(rank)].has_ended();
  if (cell(rank).state.load() == kLeft) return Presence::kLeft;
  return ended ? Presence::kEnded : Presence::kHere;
}

void SharedSegment::note_left(int writer) { left(writer).store(1); }

bool SharedSegment::has_left(int writer) const { return left(writer).load() != 0; }

std::string SharedSegment::end_of(int rank) const {
  switch (presence(rank)) {
    case Presence::kHere:
      break;
    case Presence::kLeft:
      return fmt::format("rank {} has left, or has ended; see its output", name(rank));
    case Presence::kEnded:
      return fmt::format("the process of rank {} (pid {} on this host) has ended; see its output",
                         name(rank), cell(rank).process.load());
  }
  return {};
}

void SharedSegment::throw_if_any_ended(const WaitLimit& limit) {
  for (int peer = 0; peer < ranks(); ++peer) {
    if (peer != rank_) throw_if_ended(peer, limit);
  }
}

std::span<std::byte> SharedSegment::memory() const {
  return {memory_->data(), memory_->size_bytes()};
}

}  // namespace smp::transport
