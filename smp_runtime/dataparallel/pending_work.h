// SPDX-License-Identifier: Apache-2.0
// A collective that a rank has called: what torch.distributed hands out for it.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "smp_runtime/cuda/stream_mark.h"
#include "smp_runtime/dataparallel/callback_threads.h"

namespace smp::dataparallel {

/// Waited for by any thread, ended once by the thread that ran the collective.
class PendingWork : public c10d::Work {
 public:
  /// `writes_on` is the stream that writes the results, where they are on a GPU.
  PendingWork(int rank, c10d::OpType type, uint64_t sequence, std::vector<at::Tensor> results,
              std::optional<c10::Stream> writes_on);

  [[nodiscard]] const std::optional<c10::Stream>& writes_on() const { return writes_on_; }

  /// Ends it; `error` is null for success. Whoever waits for the work goes on; the future, with its
  /// callbacks, ends in one of `threads`, or at once where there is none.
  void end(const std::exception_ptr& error, CallbackThreads* threads);

  /// What the thread's stream is given from now on waits for the results; the thread does not.
  void synchronize() override;
  void blockCurrentStream() override { synchronize(); }

  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }
  /// The group rank of what was received from any; -1 otherwise.
  int sourceRank() const override { return source_.load(); }
  void set_source(int rank) { source_.store(rank); }

 private:
  uint64_t sequence_;
  std::vector<at::Tensor> results_;
  std::optional<c10::Stream> writes_on_;
  cuda::StreamMark written_;  // of an ended work
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::atomic<int> source_{-1};
};

/// Several works as one, as batch_isend_irecv and the coalescing manager want it.
class JoinedWork : public c10d::Work {
 public:
  explicit JoinedWork(std::vector<c10::intrusive_ptr<c10d::Work>> works);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace smp::dataparallel
