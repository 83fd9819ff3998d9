// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/share_plan.h"

#include "smp_runtime/collectives/host_exchange.h"

namespace smp::collectives {

std::vector<Share> slices(const GroupLayout& layout, size_t size_bytes, size_t element_bytes) {
  const auto count = static_cast<size_t>(layout.hosts() * layout.lanes);
  std::vector<Share> shares;
  for (const Cut& cut : cut_evenly(size_bytes, element_bytes, count)) {
    const int number = static_cast<int>(shares.size());
    shares.push_back({.offset_bytes = cut.offset_bytes,
                      .size_bytes = cut.size_bytes,
                      .host = number / layout.lanes,
                      .lane = number % layout.lanes});
  }
  return shares;
}

std::vector<Share> one_each(const GroupLayout& layout, size_t size_bytes) {
  std::vector<Share> shares;
  for (int rank = 0; rank < layout.size(); ++rank) {
    shares.push_back({.offset_bytes = 0,
                      .size_bytes = size_bytes,
                      .host = layout.host(rank),
                      .lane = layout.local(rank) % layout.lanes,
                      .owner = rank});
  }
  return shares;
}

}  // namespace smp::collectives
