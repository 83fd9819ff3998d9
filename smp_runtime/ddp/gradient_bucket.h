// SPDX-License-Identifier: Apache-2.0
// Gradients that are reduced together, one behind the other in one tensor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace smp::ddp {

/// Indices of parameters in the list of all.
using Indices = std::vector<std::size_t>;

struct GradientBucket {
  Indices parameters;
  // State of the step in progress:
  std::size_t missing = 0;  ///< parameters whose gradient is not final
  bool sent = false;
  at::Tensor flat;
  c10::intrusive_ptr<c10d::Work> work;
  c10::intrusive_ptr<c10::ivalue::Future> hooked;  ///< of a communication hook; `work` is its wait
};

/// Below it a bucket is not made smaller than the user's limit: each costs a round of messages.
inline constexpr std::int64_t kSmallestBucketBytes = 1024 * 1024;

struct Gradient {
  std::int64_t bytes = 0;
  int kind = 0;  ///< those of one bucket are of one kind: type and device
};

/// Cuts a row of gradients, in the order in which a backward makes them final, into buckets that
/// are sent while it runs. They are small at both ends. The first sets the network to work early.
/// No backward hides the last, and those before must be through when it comes: a bucket half as
/// large as all that follows it leaves the network in time if that is one and a half times as fast
/// as the backward. Returns the number of consecutive gradients in each bucket, in order. A bucket
/// that has reached `bucket_bytes` takes no more; one gradient is never divided.
[[nodiscard]] std::vector<std::size_t> cut_buckets(std::span<const Gradient> row,
                                                   std::int64_t bucket_bytes);

/// Buckets of the parameters in `order`: consecutive ones of one type and device; see
/// cut_buckets().
[[nodiscard]] std::vector<GradientBucket> cut_into_buckets(
    const std::vector<at::Tensor>& parameters, const Indices& order, std::int64_t bucket_bytes);

using GradientOf = std::function<at::Tensor(std::size_t parameter)>;
/// The bucket's gradients one behind the other, zeros for undefined ones, divided by `divisor`.
/// Dividing on the way costs nothing, and behind the sum it would be work that no backward hides.
[[nodiscard]] at::Tensor flattened(const GradientBucket& bucket,
                                   const std::vector<at::Tensor>& parameters,
                                   const GradientOf& gradient_of, int divisor);

/// The bucket as a communication hook gets it: number `index` of `count`.
[[nodiscard]] c10d::GradBucket hook_argument(const GradientBucket& bucket,
                                             const std::vector<at::Tensor>& parameters,
                                             std::size_t index, std::size_t count);

/// The wait for what a communication hook returned: ends with `future`, whether that failed or not.
/// Its wait() throws session::WaitTimeout where `future` has not ended `timeout` after this call.
[[nodiscard]] c10::intrusive_ptr<c10d::Work> wait_of(c10::ivalue::Future& future,
                                                     std::chrono::milliseconds timeout);

}  // namespace smp::ddp
