// SPDX-License-Identifier: Apache-2.0
// The collectives of one tensor-parallel group.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <ATen/core/Tensor.h>

#include "smp_runtime/tensor_parallel/torch_free/exchange_throttle.h"
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

namespace smp::record {
class Recorder;
}  // namespace smp::record
namespace smp::session {
class DeadlockDetector;
}  // namespace smp::session

namespace smp::tensor_parallel {

/// One rank's side of its group. All ranks make the same calls, with tensors of the same shape and
/// type, in the same order. Calls block the CPU for tensors of the CPU, and the current stream for
/// those of a GPU; at most the group's timeout. Not thread-safe.
///
/// Sums are made in rank order, in 32 bits for 16-bit types: all ranks get the same bits, and runs
/// repeat. GPUs sum as NCCL does.
class TensorExchange {
 public:
  /// `group_name` is a registered c10d group. Empty: nothing is sent, and other ranks' tensors are
  /// taken to be as this one's, for runs that look at shapes only. At most `under_way` exchanges of
  /// a GPU are; see ExchangeThrottle. `watch`, if there is one, is asked while a call waits;
  /// `recorder`, which comes with it or is none, counts what is sent and how long that takes.
  TensorExchange(std::string group_name, int size, int rank,
                 int under_way = ExchangeThrottle::kUnlimited,
                 std::shared_ptr<session::DeadlockDetector> watch = nullptr,
                 std::shared_ptr<record::Recorder> recorder = nullptr);
  ~TensorExchange();
  TensorExchange(const TensorExchange&) = delete;
  TensorExchange& operator=(const TensorExchange&) = delete;

  [[nodiscard]] int size() const { return size_; }
  [[nodiscard]] int rank() const { return rank_; }

  /// `tensor` after `redistribution`: contiguous, without a history for autograd. Throws
  /// ConfigError for a shape that does not divide, HostError for a rank that is lost or does not
  /// come.
  at::Tensor move(const Redistribution& redistribution, const at::Tensor& tensor);

  /// Bytes that this rank has sent so far, by ring arithmetic.
  [[nodiscard]] std::int64_t bytes_sent() const { return bytes_sent_; }

 private:
  template <typename Start>
  void exchange(const at::Tensor& tensor, Start start);
  at::Tensor gather_rows(const at::Tensor& contiguous);
  at::Tensor exchange_rows(const at::Tensor& contiguous);
  at::Tensor sum_of_slices(const at::Tensor& contiguous);
  at::Tensor all_reduce(const at::Tensor& tensor);

  std::string group_name_;
  int size_;
  int rank_;
  ExchangeThrottle throttle_;
  std::shared_ptr<session::DeadlockDetector> watch_;
  std::shared_ptr<record::Recorder> recorder_;
  std::int64_t bytes_sent_ = 0;
};

}  // namespace smp::tensor_parallel
