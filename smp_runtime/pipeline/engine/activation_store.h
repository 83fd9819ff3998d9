// SPDX-License-Identifier: Apache-2.0
// Keeps activations in a slower memory between forward and backward: the inputs of checkpointed
// regions, which are all that such regions keep.
//
// A helper thread copies a tensor away after it was put and drops it; it copies back what backward
// is about to take: within a microbatch the last put first, then the next microbatch. On the CPU
// the slow memory is an arena of the same kind, which makes order and accounting testable. Tensors
// of a GPU go to pinned memory and back on two streams of their own, one each way, beside what is
// computed: no thread of the host waits for a copy, only streams do. What was put is copied behind
// what the caller's stream was given so far; what is taken is there for what that stream is given
// next.
#pragma once

#include <cstdint>
#include <memory>
#include <thread>

#include <ATen/core/Tensor.h>

namespace smp::pipeline {

class ActivationArena;

/// Thread-safe.
class ActivationStore {
 public:
  struct Options {
    /// Number of activations that are fetched ahead of the one that is taken.
    std::int64_t horizon = 4;
    /// Number of activations in fast memory at once, where they are taken last put first; 0: any.
    /// put() waits for those before to leave (with a GPU its stream does), and fewer are fetched
    /// ahead where there is no room.
    std::int64_t most_fast = 0;
    /// Speed of the copies, to stand in for a slower link; 0: as fast as they go.
    std::int64_t bytes_per_second = 0;
    /// Copy tensors of the CPU as those of a GPU are, by streams and not by the helper: for tests
    /// of that way where no GPU is.
    bool by_streams = false;
  };

  /// Sums since the beginning, but for what is named otherwise.
  struct Stats {
    std::int64_t put = 0;
    std::int64_t taken = 0;
    std::int64_t waits = 0;         ///< takes for which a copy was not done yet
    std::int64_t fast_bytes = 0;    ///< now in fast memory: fetched, or (CPU) not copied away yet
    std::int64_t fast = 0;          ///< the same in activations
    std::int64_t highest_fast = 0;  ///< the highest that `fast` has been
    std::int64_t coming = 0;        ///< now due to be in fast memory, and not there whole
    std::int64_t slow_bytes = 0;    ///< now in the arena
    std::int64_t arena_bytes = 0;   ///< size of the arena, whether used or not
  };

  /// One stored tensor. Its end forgets the tensor if nobody took it.
  class Handle {
   public:
    ~Handle();
    Handle(const Handle&) = delete;
    Handle& operator=(const Handle&) = delete;

    /// The tensor, once. On the CPU blocks until it is back, which takes as long as a copy.
    /// Throws UserCodeError if it was changed in place after it was put.
    at::Tensor take();

   private:
    friend class ActivationStore;
    friend class ActivationArena;
    struct Entry;
    Handle(std::shared_ptr<ActivationArena> arena, std::shared_ptr<Entry> entry);
    std::shared_ptr<ActivationArena> arena_;
    std::shared_ptr<Entry> entry_;
  };

  explicit ActivationStore(Options options);
  ~ActivationStore();
  ActivationStore(const ActivationStore&) = delete;
  ActivationStore& operator=(const ActivationStore&) = delete;

  /// Null for tensors that are better kept: small ones, and those that share or skip memory.
  /// Nobody may change the tensor afterwards. `microbatch` is the one that it belongs to.
  std::shared_ptr<Handle> put(const at::Tensor& tensor, std::int64_t microbatch);

  [[nodiscard]] Stats stats() const;

 private:
  std::shared_ptr<ActivationArena> arena_;
  std::thread helper_;
};

}  // namespace smp::pipeline
