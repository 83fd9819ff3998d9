// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/ddp/bucket_cut.h"

#include <algorithm>
#include <ranges>

namespace smp::ddp {

std::vector<std::size_t> cut_buckets(std::span<const Gradient> row, std::int64_t bucket_bytes) {
  std::int64_t ahead = 0;
  for (const Gradient& gradient : row) ahead += gradient.bytes;
  std::vector<std::size_t> counts;  // from the end
  std::int64_t behind = 0;
  std::int64_t bytes = 0;
  std::int64_t limit = 0;
  int kind = 0;
  for (const Gradient& gradient : row | std::views::reverse) {
    if (counts.empty() || bytes >= limit || gradient.kind != kind) {
      limit = std::min(bucket_bytes, std::max(kSmallestBucketBytes, std::min(behind, ahead) / 2));
      kind = gradient.kind;
      bytes = 0;
      counts.push_back(0);
    }
    ++counts.back();
    bytes += gradient.bytes;
    behind += gradient.bytes;
    ahead -= gradient.bytes;
  }
  std::ranges::reverse(counts);
  return counts;
}

}  // namespace smp::ddp
