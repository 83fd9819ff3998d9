// SPDX-License-Identifier: Apache-2.0
// Gradients on their way to the ranks that own them, many units in one collective.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "smp_runtime/sharding/shard_exchange.h"

namespace smp::sharding {

/// All ranks of the shard group add the same units in the same order. Not thread-safe.
class ReduceScatterBuckets {
 public:
  /// Takes the sum over the ranks of this rank's shard of a unit, in the master's type.
  using Arrive = std::function<void(int unit, const at::Tensor& sum)>;
  struct Size {
    std::int64_t shard = 0;                             ///< [elements]
    at::ScalarType master = at::ScalarType::Undefined;  ///< the type to add up in
  };
  using SizeOf = std::function<Size(int unit)>;

  /// `bucket` is the number of elements at which a bucket is sent.
  ReduceScatterBuckets(ShardExchange& exchange, std::int64_t bucket, SizeOf size_of, Arrive arrive);

  /// `flat` [padded] is this rank's gradient of a whole unit. May send, and wait for the bucket
  /// before.
  void add(int unit, at::Tensor flat);
  /// Sends what is left and waits for everything.
  void flush();
  [[nodiscard]] bool idle() const { return filling_.empty() && !inflight_; }

 private:
  struct Contribution {
    int unit = 0;
    at::Tensor flat;
  };
  struct Bucket {
    std::vector<int> units;
    ShardExchange::Pending pending;
  };

  void launch();
  void finish();

  ShardExchange& exchange_;
  const std::int64_t bucket_;
  const SizeOf size_of_;
  const Arrive arrive_;
  std::vector<Contribution> filling_;
  std::int64_t elements_ = 0;
  std::optional<Bucket> inflight_;  ///< beside the one that fills
};

}  // namespace smp::sharding
