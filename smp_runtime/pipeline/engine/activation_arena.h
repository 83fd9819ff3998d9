// SPDX-License-Identifier: Apache-2.0
// The activations of a store and the memory that they are moved to, shared by the threads that put
// and take them and the helper thread that copies.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include "smp_runtime/cuda/stream_event.h"
#include "smp_runtime/pipeline/engine/activation_store.h"

namespace smp::pipeline {

/// Place of an entry. kLeaving and kComing are a copy that the helper thread is at.
enum class Place { kFast, kLeaving, kSlow, kComing, kGone };

struct ActivationStore::Handle::Entry {
  std::int64_t microbatch = 0;
  Place place = Place::kFast;
  bool wanted = false;  ///< is to be fetched, or not to leave
  at::Tensor fast;
  at::Tensor slow;  ///< a block of the arena, at least as large
  at::TensorOptions options;
  std::vector<std::int64_t> sizes;
  std::vector<std::int64_t> strides;
  std::int64_t bytes = 0;
  std::int64_t version = 0;
  c10::VariableVersion counter;  ///< of the original
  bool by_streams = false;       ///< copied as a GPU's; then:
  cuda::StreamEvent copied;      ///< where the last copy of it is done
};

/// Streams of one GPU.
struct CopyStreams {
  c10::Stream away;
  c10::Stream back;
};

/// Slow memory that nobody holds. A copy may still read or write it.
struct FreeBlock {
  at::Tensor memory;
  cuda::StreamEvent copied;
};

/// Number of blocks of so many bytes to ask for at once. The allocator of pinned memory takes
/// powers of two: one block may waste nearly as much as it holds, those that fill one together
/// little.
[[nodiscard]] std::int64_t blocks_together(std::int64_t bytes);

/// State shared by handles and helper thread; outlives the store while a handle is left.
class ActivationArena {
 public:
  using Entry = ActivationStore::Handle::Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  explicit ActivationArena(ActivationStore::Options options) : options_(options) {}

  EntryPtr put(const at::Tensor& tensor, std::int64_t microbatch);
  at::Tensor take(const EntryPtr& entry);
  void forget(const EntryPtr& entry);
  [[nodiscard]] ActivationStore::Stats stats() const;

  void run();  ///< of the helper thread
  void stop();

 private:
  at::Tensor new_fast(const Entry& entry) const;
  FreeBlock new_block(std::int64_t bytes);
  FreeBlock new_pinned_block(std::int64_t bytes, bool on_gpu);
  void give_back(Entry& entry);
  void remove(const EntryPtr& entry);
  CopyStreams& streams(const at::Device& device);
  void send_away(const EntryPtr& entry, const at::Tensor& tensor);
  void send_back(Entry& entry);
  at::Tensor slow_view(const Entry& entry) const;
  void make_room(std::unique_lock<std::mutex>& lock, const at::Tensor& tensor);
  void let_go_of_oldest(const c10::Stream& stream);
  [[nodiscard]] bool has_room() const;
  void fetch_ahead(const EntryPtr& taken);
  void want(const EntryPtr& entry);
  void copy_away(std::unique_lock<std::mutex>& lock, const EntryPtr& entry);
  void copy_back(std::unique_lock<std::mutex>& lock, const EntryPtr& entry);
  void copy(void* to, const void* from, std::int64_t bytes) const;
  void note_fast(std::int64_t bytes);

  const ActivationStore::Options options_;
  mutable std::mutex mutex_;  ///< guards all below and all entries
  std::condition_variable work_;
  std::condition_variable moved_;  ///< the helper thread has copied one, or need not
  std::deque<EntryPtr> leaving_;
  std::deque<EntryPtr> coming_;
  std::deque<EntryPtr> kept_;  ///< by streams, with most_fast: on their way and still held
  bool is_leaving_ = false;    ///< the helper thread copies one away
  std::map<std::int64_t, std::vector<EntryPtr>> by_microbatch_;  ///< in the order they were put
  std::multimap<std::int64_t, FreeBlock> free_blocks_;           ///< by size
  std::map<int, CopyStreams> streams_;                           ///< by number of the GPU
  ActivationStore::Stats stats_;
  bool stopped_ = false;
};

}  // namespace smp::pipeline
