// SPDX-License-Identifier: Apache-2.0
// Plan of a collective's data between hosts: chunks, and the rank of each host that leads each.
//
// Data is cut into chunks. Each has one leader, a rail of a host: the chunk's value comes to it (a
// sum of all ranks', or what one rank has) and goes out from it. With
//   all_reduce = sums in, to all        reduce = sums in, to the root
//   reduce_scatter = sums in, to owner  broadcast = the root's in, to all
//   all_gather = the owner's in, to all scatter = the root's in, to owner
//   gather = the owner's in, to the root
// every collective is one schedule over the chunks. Chunks of equal size for all rails of all hosts
// load all of them alike whatever the sizes of tensors are, and a host of N sends and receives
// 2 M (N-1)/N bytes for an all_reduce of M: "balanced fusion buffers" of Herring (SC20).
#pragma once

#include <cstddef>
#include <vector>

#include "smp_runtime/topology/group_layout.h"

namespace smp::collectives {

enum class Arrival { kSum, kFromRoot, kFromOwner };
enum class Departure { kToAll, kToRoot, kToOwner };

struct Chunk {
  size_t offset_bytes = 0;  ///< in the whole, of even_chunks()
  size_t size_bytes = 0;
  int host = 0;    ///< of the leader
  int rail = 0;    ///< of the leader
  int owner = -1;  ///< a group rank on that host, or -1
};

struct ChunkPlan {
  Arrival arrival{};
  Departure departure{};
  int root = -1;
  std::vector<Chunk> chunks;
};

/// The whole in chunks, one for each rail of each host.
[[nodiscard]] std::vector<Chunk> even_chunks(const topology::GroupLayout& layout, size_t size_bytes,
                                             size_t element_bytes);
/// One chunk for each rank, led by a rail of its host, all of one size.
[[nodiscard]] std::vector<Chunk> chunk_per_rank(const topology::GroupLayout& layout,
                                                size_t size_bytes);

}  // namespace smp::collectives
