// SPDX-License-Identifier: Apache-2.0
// Memory for copies of state, which are written while training goes on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include <ATen/core/Tensor.h>

namespace smp::checkpoint {

/// Blocks of it. One that is given back is kept for the next snapshot of the same state: its pages
/// are there already. Thread-safe; outlives its blocks by shared ownership.
class SnapshotMemory : public std::enable_shared_from_this<SnapshotMemory> {
 public:
  /// The bytes of one storage. Gives itself back.
  class Block {
   public:
    Block(at::Tensor bytes, std::shared_ptr<SnapshotMemory> memory)
        : bytes_(std::move(bytes)), memory_(std::move(memory)) {}
    ~Block();
    Block(Block&&) noexcept = default;
    Block& operator=(Block&&) = delete;

    [[nodiscard]] const at::Tensor& bytes() const { return bytes_; }

   private:
    at::Tensor bytes_;
    std::shared_ptr<SnapshotMemory> memory_;
  };

  /// A block, page-locked if `pinned`, which only a process with a GPU may ask for.
  Block take(std::int64_t bytes, bool pinned);
  /// Frees the blocks that nobody has.
  void trim();
  /// Bytes of all blocks, taken or not.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  using Kind = std::pair<std::int64_t, bool>;

  void give_back(at::Tensor block);

  mutable std::mutex mutex_;
  std::multimap<Kind, at::Tensor> free_;
  std::int64_t bytes_ = 0;
};

}  // namespace smp::checkpoint
