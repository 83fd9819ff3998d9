// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/chunk_plan.h"

#include "smp_runtime/smddp/collectives/intra_node.h"

namespace smp::collectives {

std::vector<Chunk> even_chunks(const topology::GroupLayout& layout, size_t size_bytes,
                               size_t element_bytes) {
  const auto count = static_cast<size_t>(layout.hosts() * layout.rails);
  std::vector<Chunk> chunks;
  for (const Cut& cut : cut_evenly(size_bytes, element_bytes, count)) {
    const int number = static_cast<int>(chunks.size());
    chunks.push_back({.offset_bytes = cut.offset_bytes,
                      .size_bytes = cut.size_bytes,
                      .host = number / layout.rails,
                      .rail = number % layout.rails});
  }
  return chunks;
}

std::vector<Chunk> chunk_per_rank(const topology::GroupLayout& layout, size_t size_bytes) {
  std::vector<Chunk> chunks;
  for (int rank = 0; rank < layout.size(); ++rank) {
    chunks.push_back({.offset_bytes = 0,
                      .size_bytes = size_bytes,
                      .host = layout.host(rank),
                      .rail = layout.local(rank) % layout.rails,
                      .owner = rank});
  }
  return chunks;
}

}  // namespace smp::collectives
