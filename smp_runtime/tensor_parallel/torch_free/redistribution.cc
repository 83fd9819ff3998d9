// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/tensor_parallel/torch_free/redistribution.h"

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"

namespace smp::tensor_parallel {
namespace {

std::size_t position(int dim, std::span<const std::int64_t> sizes, const std::string& what) {
  const int dims = static_cast<int>(sizes.size());
  if (dim < -dims || dim >= dims) {
    throw ConfigError("{} has shape [{}], which has no dim {} to be split or joined along", what,
                      fmt::join(sizes, ", "), dim);
  }
  return static_cast<std::size_t>(dim < 0 ? dim + dims : dim);
}

void require_divisible(std::span<const std::int64_t> sizes, std::size_t dim, std::int64_t ranks,
                       const std::string& what) {
  if (sizes[dim] % ranks == 0) return;
  throw ConfigError(
      "{} has shape [{}]: its dim {} of {} does not divide by the {} ranks of the tensor-parallel "
      "group",
      what, fmt::join(sizes, ", "), dim, sizes[dim], ranks);
}

}  // namespace

std::vector<std::int64_t> moved_sizes(const Redistribution& redistribution,
                                      std::span<const std::int64_t> sizes, std::int64_t ranks,
                                      const std::string& what) {
  std::vector<std::int64_t> moved(sizes.begin(), sizes.end());
  if (redistribution.kind == RedistributionKind::kStay ||
      redistribution.kind == RedistributionKind::kAllReduce) {
    return moved;
  }
  const std::size_t dim = position(redistribution.dim, sizes, what);
  if (redistribution.kind == RedistributionKind::kGather) {
    moved[dim] *= ranks;
    return moved;
  }
  require_divisible(sizes, dim, ranks, what);
  moved[dim] /= ranks;
  if (redistribution.kind == RedistributionKind::kExchange) {
    moved[position(redistribution.join, sizes, what)] *= ranks;
  }
  return moved;
}

std::int64_t bytes_sent(const Redistribution& redistribution, std::int64_t bytes,
                        std::int64_t ranks) {
  switch (redistribution.kind) {
    case RedistributionKind::kStay:
    case RedistributionKind::kSlice:
      return 0;
    case RedistributionKind::kGather:
      return bytes * (ranks - 1);
    case RedistributionKind::kReduceScatter:
    case RedistributionKind::kExchange:
      return bytes * (ranks - 1) / ranks;
    case RedistributionKind::kAllReduce:
      return 2 * bytes * (ranks - 1) / ranks;
  }
  throw InternalError("a redistribution of unknown kind");
}

}  // namespace smp::tensor_parallel
