// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/state/snapshot_memory.h"

#include <ATen/ops/empty.h>

namespace smp::checkpoint {

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
  return {at::empty({bytes}, at::TensorOptions(at::kByte).pinned_memory(pinned)),
          shared_from_this()};
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
