// SPDX-License-Identifier: Apache-2.0
// Cuts a row of gradients, in the order in which a backward makes them final, into buckets that are
// sent while it runs.
//
// Buckets are small at both ends. The first sets the network to work early. No backward hides the
// last, and those before must be through when it comes: a bucket half as large as all that follows
// it leaves the network in time if that is one and a half times as fast as the backward.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace smp::ddp {

/// Below it a bucket is not made smaller than the user's limit: each costs a round of messages.
inline constexpr std::int64_t kSmallestBucketBytes = 1024 * 1024;

struct Gradient {
  std::int64_t bytes = 0;
  int kind = 0;  ///< those of one bucket are of one kind: type and device
};

/// Number of consecutive gradients in each bucket, in order. A bucket that has reached
/// `bucket_bytes` takes no more; one gradient is never divided.
[[nodiscard]] std::vector<std::size_t> cut_buckets(std::span<const Gradient> row,
                                                   std::int64_t bucket_bytes);

}  // namespace smp::ddp
