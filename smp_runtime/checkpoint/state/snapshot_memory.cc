// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/snapshot_memory.h"

#include <cstdint>

#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <unistd.h>

namespace smp::checkpoint {
namespace {

/// Memory that is new is found a page at a time, which takes longer than a copy. Systems without
/// huge pages go on with theirs.
void ask_for_huge_pages(const at::Tensor& block) {
  static const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(block.data_ptr());
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + block.nbytes()) / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
}

}  // namespace

SnapshotMemory::Block::~Block() {
  if (memory_) memory_->give_back(std::move(bytes_));
}

SnapshotMemory::Block SnapshotMemory::take(std::int64_t bytes, bool pinned) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = free_.find({bytes, pinned}); found != free_.end()) {
      at::Tensor block = std::move(found->second);
      free_.erase(found);
      return {std::move(block), shared_from_this()};
    }
    bytes_ += bytes;
  }
  at::Tensor block = at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(pinned));
  if (!pinned) ask_for_huge_pages(block);
  return {std::move(block), shared_from_this()};
}

void SnapshotMemory::give_back(at::Tensor block) {
  const std::lock_guard lock(mutex_);
  const Kind kind{block.numel(), block.is_pinned()};
  free_.emplace(kind, std::move(block));
}

void SnapshotMemory::trim() {
  const std::lock_guard lock(mutex_);
  for (const auto& [kind, block] : free_) bytes_ -= kind.first;
  free_.clear();
}

std::int64_t SnapshotMemory::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace smp::checkpoint
