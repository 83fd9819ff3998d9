// SPDX-License-Identifier: Apache-2.0
// Redistributions of tensors in a tensor-parallel group; where tensors enter or leave a region: one
// redistribution forward, its dual backward. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace smp::tensor_parallel {

/// With t ranks, x the tensor of each, and dims counted from the end where negative:
enum class RedistributionKind : std::uint8_t {
  kStay,    ///< x
  kSlice,   ///< x [.., n, ..] -> this rank's [.., n/t, ..] of it along `dim`; nothing is sent
  kGather,  ///< x [.., n, ..] -> [.., t*n, ..], all ranks' in rank order along `dim`
  kReduceScatter,  ///< the sum over ranks of x, of which each gets its slice along `dim`
  kAllReduce,      ///< the sum over ranks of x
  kExchange,  ///< x in t slices along `dim`, one to each rank; what comes is joined along `join`
};

struct Redistribution {
  RedistributionKind kind = RedistributionKind::kStay;
  int dim = 0;
  int join = 0;  ///< of kExchange only

  friend bool operator==(const Redistribution&, const Redistribution&) = default;
};

/// Takes x forward by one redistribution and its gradient backward by another, then times `scale`.
///
/// The scale is 1/t where a group's ranks leave a region that sees all their batches, and t where
/// they enter it. Inside, gradients are then those of the mean of the ranks' losses, as they are
/// everywhere else after averaging over the data-parallel group: a slice's gradient needs averaging
/// over the reduced data-parallel group only, and each number of accumulated backwards is right.
struct RegionMapping {
  Redistribution forward;
  Redistribution backward;
  double backward_scale = 1.0;
};

/// The shape that `redistribution` makes of `sizes` among `ranks`. Throws ConfigError if `what` has
/// no such dim or does not divide there.
std::vector<std::int64_t> moved_sizes(const Redistribution& redistribution,
                                      std::span<const std::int64_t> sizes, std::int64_t ranks,
                                      const std::string& what);

/// The bytes that one rank sends for `redistribution` of `bytes`, by ring arithmetic.
std::int64_t bytes_sent(const Redistribution& redistribution, std::int64_t bytes,
                        std::int64_t ranks);

}  // namespace smp::tensor_parallel
