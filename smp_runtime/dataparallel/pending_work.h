// SPDX-License-Identifier: Apache-2.0
// A collective that a rank has called: what torch.distributed hands out for it.
#pragma once

#include <exception>
#include <vector>

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace smp::dataparallel {

/// Waited for by any thread, ended once by the thread that ran the collective.
class PendingWork : public c10d::Work {
 public:
  PendingWork(int rank, c10d::OpType type, uint64_t sequence, std::vector<at::Tensor> results);

  /// Ends it; `error` is null for success. Callbacks of the future run in the calling thread.
  void end(std::exception_ptr error);

  std::vector<at::Tensor> result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return sequence_; }

 private:
  uint64_t sequence_;
  std::vector<at::Tensor> results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace smp::dataparallel
