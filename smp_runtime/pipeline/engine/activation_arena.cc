// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/activation_arena.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

constexpr std::int64_t kBlockBytes =
    64 * 1024;  // arena blocks are multiples, so that they fit again

constexpr std::int64_t kMostTogether = 8;  // blocks, of which all but one may stay unused

std::int64_t bytes_of(const at::Tensor& tensor) {
  return static_cast<std::int64_t>(tensor.nbytes());
}

std::int64_t block_size(std::int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

/// Memory that the allocator of pinned memory takes for `bytes`.
std::int64_t pinned_size(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes)));
}

}  // namespace

std::int64_t blocks_together(std::int64_t bytes) {
  const auto waste = [bytes](std::int64_t count) {
    const std::int64_t used = bytes * count;
    return static_cast<double>(pinned_size(used) - used) / static_cast<double>(used);
  };
  std::int64_t best = 1;
  for (std::int64_t count = 1; count <= kMostTogether; ++count) {
    if (waste(count) <= 0.125) return count;
    if (waste(count) < waste(best)) best = count;
  }
  return best;
}

// --- Calling threads ---

ActivationArena::EntryPtr ActivationArena::put(const at::Tensor& tensor, std::int64_t microbatch) {
  auto entry = std::make_shared<Entry>();
  entry->microbatch = microbatch;
  entry->fast = tensor.detach();
  entry->options = tensor.options();
  entry->sizes = tensor.sizes().vec();
  entry->strides = tensor.strides().vec();
  entry->bytes = bytes_of(tensor);
  entry->version = tensor._version();
  entry->counter = tensor.unsafeGetTensorImpl()->version_counter();
  entry->by_streams = tensor.is_cuda() || options_.by_streams;
  std::unique_lock lock(mutex_);
  if (options_.most_fast > 0) make_room(lock, tensor);
  ++stats_.put;
  by_microbatch_[microbatch].push_back(entry);
  if (entry->by_streams) {
    send_away(entry, tensor);
    return entry;
  }
  note_fast(entry->bytes);
  leaving_.push_back(entry);
  work_.notify_one();
  return entry;
}

at::Tensor ActivationArena::take(const EntryPtr& entry) {
  std::unique_lock lock(mutex_);
  SMP_CHECK(entry->place != Place::kGone, "an activation was taken twice");
  const bool by_streams = entry->by_streams;
  const bool is_away = entry->place == Place::kSlow || entry->place == Place::kComing;
  if (by_streams || is_away) want(entry);
  if (!coming_.empty() && coming_.back() == entry) {  // before what is only fetched ahead
    coming_.pop_back();
    coming_.push_front(entry);
  }
  fetch_ahead(entry);
  if (by_streams) {
    const c10::Stream stream = cuda::current_stream(entry->options.device());
    if (!entry->copied.query()) ++stats_.waits;
    entry->copied.block(stream);
    cuda::note_use(entry->fast, stream);
  } else if (is_away) {
    // No deadline: the helper thread only copies, and a copy ends.
    moved_.wait(lock, [&] { return entry->place == Place::kFast; });
    ++stats_.waits;
  }
  at::Tensor tensor = std::move(entry->fast);
  // As autograd's own check; the original may be gone, its counter is not.
  const bool changed = entry->counter.current_version() != entry->version;
  note_fast(-entry->bytes);
  ++stats_.taken;
  give_back(*entry);
  remove(entry);
  if (changed) {
    throw UserCodeError(
        "the input of a checkpointed module (shape {}) was changed in place after the call; copy "
        "it before the change",
        fmt::join(entry->sizes, "x"));
  }
  return tensor;
}

void ActivationArena::forget(const EntryPtr& entry) {
  const std::lock_guard lock(mutex_);
  if (entry->place == Place::kGone) return;
  const Place place = entry->place;
  if (place == Place::kFast || place == Place::kLeaving) note_fast(-entry->bytes);
  remove(entry);  // a copy under way finds it gone and gives its memory back
  if (entry->by_streams && entry->wanted && entry->fast.defined()) {
    // Its memory may belong to the stream that computes, and a copy still write there.
    cuda::note_use(entry->fast, streams(entry->options.device()).back);
  }
  entry->fast.reset();
  if (place == Place::kFast || place == Place::kSlow) give_back(*entry);
}

// --- GPUs; the lock is held, and nothing waits but streams ---

CopyStreams& ActivationArena::streams(const at::Device& device) {
  const auto found = streams_.find(device.index());
  if (found != streams_.end()) return found->second;
  const CopyStreams made{.away = cuda::side_stream(device, cuda::Priority::kNormal),
                         .back = cuda::side_stream(device, cuda::Priority::kNormal)};
  return streams_.emplace(device.index(), made).first->second;
}

at::Tensor ActivationArena::slow_view(const Entry& entry) const {
  return entry.slow.narrow(0, 0, entry.bytes)
      .view(entry.options.dtype().toScalarType())
      .as_strided(entry.sizes, entry.strides);
}

/// The allocator keeps the tensor's memory until the copy is done, whoever frees it. It learns so
/// late, though, from a host that is ahead of its GPU: with most_fast the tensor is held until the
/// stream that computes waits for the copy, and its memory is free for what comes behind then.
void ActivationArena::send_away(const EntryPtr& kept, const at::Tensor& tensor) {
  Entry& entry = *kept;
  const at::NoGradGuard no_grad;
  const c10::Stream stream = streams(tensor.device()).away;
  FreeBlock block = new_pinned_block(entry.bytes, tensor.is_cuda());
  entry.slow = std::move(block.memory);
  block.copied.block(stream);
  cuda::StreamEvent::record(tensor.device()).block(stream);
  {
    const c10::StreamGuard guard(stream);
    slow_view(entry).copy_(tensor, /*non_blocking=*/true);
  }
  entry.copied = cuda::StreamEvent(stream);
  stats_.slow_bytes += entry.bytes;
  if (options_.most_fast > 0) {
    note_fast(entry.bytes);
    kept_.push_back(kept);
    return;
  }
  cuda::note_use(tensor, stream);
  entry.fast.reset();
  entry.place = Place::kSlow;
}

void ActivationArena::send_back(Entry& entry) {
  const at::NoGradGuard no_grad;
  const c10::Stream stream = streams(entry.options.device()).back;
  entry.copied.block(stream);
  if (options_.most_fast > 0) {  // memory that was let go of comes back to the stream that computes
    entry.fast = new_fast(entry);
    cuda::StreamEvent::record(entry.options.device()).block(stream);
  }
  const c10::StreamGuard guard(stream);
  if (!entry.fast.defined()) entry.fast = new_fast(entry);
  entry.fast.copy_(slow_view(entry), /*non_blocking=*/true);
  entry.copied = cuda::StreamEvent(stream);
  entry.place = Place::kFast;
  note_fast(entry.bytes);
}

/// Until one more activation may be in fast memory. What is wanted there stays: with nothing on its
/// way out there is nothing to wait for.
void ActivationArena::make_room(std::unique_lock<std::mutex>& lock, const at::Tensor& tensor) {
  if (tensor.is_cuda() || options_.by_streams) {
    const c10::Stream stream = cuda::current_stream(tensor.device());
    while (!has_room() && !kept_.empty()) let_go_of_oldest(stream);
    return;
  }
  // No deadline: the helper thread only copies, and a copy ends.
  moved_.wait(lock, [&] { return has_room() || (leaving_.empty() && !is_leaving_); });
}

void ActivationArena::let_go_of_oldest(const c10::Stream& stream) {
  const EntryPtr entry = std::move(kept_.front());
  kept_.pop_front();
  if (entry->place != Place::kFast || entry->wanted) return;
  entry->copied.block(stream);
  entry->fast.reset();
  entry->place = Place::kSlow;
  note_fast(-entry->bytes);
}

bool ActivationArena::has_room() const {
  const auto due = static_cast<std::int64_t>(coming_.size());
  return options_.most_fast <= 0 || stats_.fast + due < options_.most_fast;
}

/// Wants what will be taken next.
void ActivationArena::fetch_ahead(const EntryPtr& taken) {
  std::int64_t left = options_.horizon;
  const auto from_end = [&](const std::vector<EntryPtr>& entries, std::size_t end) {
    for (; end > 0 && left > 0; --end, --left) {
      const EntryPtr& entry = entries[end - 1];
      if (entry->place == Place::kSlow && !entry->wanted && !has_room()) return;
      want(entry);
    }
  };
  const auto own = by_microbatch_.find(taken->microbatch);
  const auto place = std::find(own->second.begin(), own->second.end(), taken);
  from_end(own->second, static_cast<std::size_t>(place - own->second.begin()));
  for (auto next = std::next(own); left > 0 && next != own; ++next) {
    if (next == by_microbatch_.end()) next = by_microbatch_.begin();
    if (next == own) break;
    from_end(next->second, next->second.size());
  }
}

void ActivationArena::want(const EntryPtr& entry) {
  if (std::exchange(entry->wanted, true)) return;
  if (entry->by_streams) {
    if (entry->place == Place::kSlow) send_back(*entry);
  } else if (entry->place == Place::kSlow) {
    coming_.push_back(entry);
    work_.notify_one();
  }
}

ActivationStore::Stats ActivationArena::stats() const {
  const std::lock_guard lock(mutex_);
  ActivationStore::Stats stats = stats_;
  for (const auto& [microbatch, entries] : by_microbatch_) {
    stats.coming += std::ranges::count_if(entries, [](const EntryPtr& entry) {
      return entry->wanted && (entry->place == Place::kSlow || entry->place == Place::kComing);
    });
  }
  return stats;
}

// --- Memory; the lock is held ---

at::Tensor ActivationArena::new_fast(const Entry& entry) const {
  return at::empty_strided(entry.sizes, entry.strides, entry.options.requires_grad(false));
}

FreeBlock ActivationArena::new_block(std::int64_t bytes) {
  const std::int64_t size = block_size(bytes);
  const auto found = free_blocks_.find(size);
  if (found != free_blocks_.end()) return std::move(free_blocks_.extract(found).mapped());
  stats_.arena_bytes += size;
  return {.memory = at::empty({size}, at::TensorOptions().dtype(at::kByte))};
}

/// Pinned only for a GPU, without which there is none.
FreeBlock ActivationArena::new_pinned_block(std::int64_t bytes, bool on_gpu) {
  const std::int64_t size = block_size(bytes);
  const auto found = free_blocks_.find(size);
  if (found != free_blocks_.end()) return std::move(free_blocks_.extract(found).mapped());
  const std::int64_t count = blocks_together(size);
  stats_.arena_bytes += pinned_size(count * size);
  const at::Tensor blocks =
      at::empty({count, size}, at::TensorOptions().dtype(at::kByte).pinned_memory(on_gpu));
  for (std::int64_t number = 1; number < count; ++number) {
    free_blocks_.emplace(size, FreeBlock{.memory = blocks[number], .copied = {}});
  }
  return {.memory = blocks[0], .copied = {}};
}

void ActivationArena::give_back(Entry& entry) {
  if (!entry.slow.defined()) return;
  stats_.slow_bytes -= entry.bytes;
  const std::int64_t size = entry.slow.numel();
  free_blocks_.emplace(size, FreeBlock{.memory = std::move(entry.slow), .copied = entry.copied});
}

void ActivationArena::remove(const EntryPtr& entry) {
  entry->place = Place::kGone;
  const auto own = by_microbatch_.find(entry->microbatch);
  std::erase(own->second, entry);
  if (own->second.empty()) by_microbatch_.erase(own);
  std::erase(kept_, entry);
}

/// Of one activation, that comes or, below zero, goes.
void ActivationArena::note_fast(std::int64_t bytes) {
  stats_.fast_bytes += bytes;
  stats_.fast += bytes < 0 ? -1 : 1;
  stats_.highest_fast = std::max(stats_.highest_fast, stats_.fast);
}

// --- Helper thread ---

void ActivationArena::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    // No deadline: there is nothing to do until somebody asks.
    work_.wait(lock, [&] { return stopped_ || !coming_.empty() || !leaving_.empty(); });
    if (stopped_) return;
    auto& queue = coming_.empty() ? leaving_ : coming_;
    const bool back = &queue == &coming_;
    const EntryPtr entry = std::move(queue.front());
    queue.pop_front();
    if (back) {
      copy_back(lock, entry);
    } else {
      is_leaving_ = true;
      copy_away(lock, entry);
      is_leaving_ = false;
    }
    moved_.notify_all();
  }
}

void ActivationArena::stop() {
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  work_.notify_one();
}

void ActivationArena::copy_away(std::unique_lock<std::mutex>& lock, const EntryPtr& entry) {
  if (entry->place != Place::kFast || entry->wanted) return;
  entry->place = Place::kLeaving;
  at::Tensor block = new_block(entry->bytes).memory;
  const at::Tensor fast = entry->fast;  // whoever takes it meanwhile has it at once
  lock.unlock();
  copy(block.data_ptr(), fast.data_ptr(), entry->bytes);
  lock.lock();
  stats_.slow_bytes += entry->bytes;
  entry->slow = std::move(block);
  if (entry->place == Place::kGone) {
    give_back(*entry);
  } else if (entry->wanted) {
    give_back(*entry);
    entry->place = Place::kFast;
  } else {
    entry->fast.reset();
    entry->place = Place::kSlow;
    note_fast(-entry->bytes);
  }
}

void ActivationArena::copy_back(std::unique_lock<std::mutex>& lock, const EntryPtr& entry) {
  if (entry->place != Place::kSlow) return;
  entry->place = Place::kComing;
  note_fast(entry->bytes);
  const at::Tensor block = entry->slow;
  lock.unlock();
  at::Tensor fast = new_fast(*entry);
  copy(fast.data_ptr(), block.data_ptr(), entry->bytes);
  lock.lock();
  if (entry->place == Place::kGone) {
    note_fast(-entry->bytes);
    give_back(*entry);
    return;
  }
  entry->fast = std::move(fast);
  entry->place = Place::kFast;
}

void ActivationArena::copy(void* to, const void* from, std::int64_t bytes) const {
  const auto begin = Clock::now();
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
  if (options_.bytes_per_second <= 0) return;
  const std::chrono::duration<double> takes(static_cast<double>(bytes) /
                                            static_cast<double>(options_.bytes_per_second));
  std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(takes));
}

}  // namespace smp::pipeline
