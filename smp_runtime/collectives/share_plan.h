// SPDX-License-Identifier: Apache-2.0
// Who carries which part of a collective's data between hosts.
//
// Data is cut into shares. Each has one carrier, a lane of a host: the value of the share comes to
// it (a sum of all ranks', or what one rank has) and goes out from it. With
//   all_reduce = sums in, to all        reduce = sums in, to the root
//   reduce_scatter = sums in, to owner  broadcast = the root's in, to all
//   all_gather = the owner's in, to all scatter = the root's in, to owner
//   gather = the owner's in, to the root
// every collective is one walk over the shares. Slices of equal size for all lanes of all hosts
// load all of them alike whatever the sizes of tensors are, and a host of N sends and receives
// 2 M (N-1)/N bytes for an all_reduce of M: "balanced fusion buffers" of Herring (SC20).
#pragma once

#include <cstddef>
#include <vector>

#include "smp_runtime/collectives/group_layout.h"

namespace smp::collectives {

enum class Arrival { kSum, kFromRoot, kFromOwner };
enum class Departure { kToAll, kToRoot, kToOwner };

struct Share {
  size_t offset_bytes = 0;  ///< in the whole, for slices
  size_t size_bytes = 0;
  int host = 0;    ///< of the carrier
  int lane = 0;    ///< of the carrier
  int owner = -1;  ///< a group rank on that host, or -1
};

struct SharePlan {
  Arrival arrival{};
  Departure departure{};
  int root = -1;
  std::vector<Share> shares;
};

/// The whole in slices, one for each lane of each host.
[[nodiscard]] std::vector<Share> slices(const GroupLayout& layout, size_t size_bytes,
                                        size_t element_bytes);
/// One share for each rank, carried by a lane of its host, all of one size.
[[nodiscard]] std::vector<Share> one_each(const GroupLayout& layout, size_t size_bytes);

}  // namespace smp::collectives
