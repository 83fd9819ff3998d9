// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/schedule_rounds.h"

#include <algorithm>
#include <map>
#include <utility>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"

namespace smp::collectives {
namespace {

/// At the end of a schedule hosts wait for the last pieces of each other, so that these should be
/// small beside the whole; but not so small that their headers count. A fast network counts
/// messages rather than bytes: there a piece is as large as a buffer lets it be.
constexpr size_t kRounds = 64;
constexpr size_t kLeastPiece = 8 * 1024;

}  // namespace

ScheduleRounds ScheduleRounds::of(const ChunkPlan& plan, int hosts, const Limits& limits) {
  // A buffer has a place for each chunk, then those for what comes from other hosts to be added.
  const size_t chunks = plan.chunks.size();
  const auto others = static_cast<size_t>(hosts);
  ScheduleRounds rounds;
  std::map<std::pair<int, int>, size_t> led;
  size_t most = 0;
  size_t longest = 0;
  for (const Chunk& chunk : plan.chunks) {
    const size_t before = led[{chunk.host, chunk.rail}]++;
    rounds.incoming.push_back(chunks + before * others);
    most = std::max(most, before + 1);
    longest = std::max(longest, chunk.size_bytes);
  }
  const size_t sums = plan.arrival == Arrival::kSum ? most : 0;
  const size_t places = std::max<size_t>(chunks + sums * others, 1);
  size_t& piece = rounds.piece_bytes;
  piece = limits.buffer_bytes / places / limits.growth / kCacheLineBytes * kCacheLineBytes;
  SMP_CHECK(piece > 0, "buffers of {} bytes are too small for {} places", limits.buffer_bytes,
            places);
  if (!limits.largest_pieces) {
    const size_t wanted =
        std::max(longest / kRounds / kCacheLineBytes * kCacheLineBytes, kLeastPiece);
    piece = std::min(piece, wanted);
  }
  rounds.count = (longest + piece - 1) / piece;
  return rounds;
}

size_t ScheduleRounds::bytes_of(const Chunk& chunk, size_t number) const {
  return std::min(piece_bytes, chunk.size_bytes - std::min(chunk.size_bytes, number * piece_bytes));
}

std::vector<int> hosts_after(int host, int hosts) {
  std::vector<int> order;
  for (int next = 1; next < hosts; ++next) order.push_back((host + next) % hosts);
  return order;
}

}  // namespace smp::collectives
