// SPDX-License-Identifier: Apache-2.0
// Cut of a plan's chunks into rounds, and the places that a rank's buffer has in each round. Pure.
#pragma once

#include <cstddef>
#include <vector>

#include "smp_runtime/smddp/collectives/chunk_plan.h"

namespace smp::collectives {

/// Turns that messages of a step have before they are waited for: a direction of the network that
/// is slow for a moment does not stop the other.
inline constexpr size_t kLag = 4;

struct ScheduleRounds {
  struct Limits {
    size_t buffer_bytes = 0;
    size_t growth = 1;  ///< size of a host's part of a sum in elements
    /// Pieces as large as a buffer lets them be: of a network that counts messages, not bytes.
    bool largest_pieces = false;
  };

  size_t piece_bytes = 0;  ///< of each chunk in one round, but for its last ones
  size_t count = 0;        ///< rounds
  std::vector<size_t>
      incoming;  ///< by chunk: the first place for what other hosts send to be added

  /// Throws InternalError where a buffer is too small for the places of a round.
  [[nodiscard]] static ScheduleRounds of(const ChunkPlan& plan, int hosts, const Limits& limits);

  /// Bytes of a chunk in round `number`.
  [[nodiscard]] size_t bytes_of(const Chunk& chunk, size_t number) const;
};

/// The other hosts in the order in which `host` turns to them: each begins with another one, or all
/// would send to the same one at a time.
[[nodiscard]] std::vector<int> hosts_after(int host, int hosts);

}  // namespace smp::collectives
