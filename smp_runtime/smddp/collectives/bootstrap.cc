// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/bootstrap.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/call_check.h"
#include "smp_runtime/transport/shared_memory.h"

namespace smp::collectives {
namespace {

using transport::SharedMemory;
using transport::SharedSegment;

/// The first rank of a host gets the mailboxes of all others at once.
constexpr size_t kMailboxesOfOtherHosts = 1024 * 1024;
/// Below it, messages cost more than their bytes.
constexpr size_t kSmallestPiece = 4096;

}  // namespace

transport::SegmentShape segment_shape(const topology::GroupLayout& layout, const Tuning& tuning) {
  const auto ranks = static_cast<size_t>(layout.size());
  const bool several = layout.hosts() > 1;
  const size_t most = several ? kMailboxesOfOtherHosts / ranks / kCacheLineBytes * kCacheLineBytes
                              : tuning.small_bytes;
  // The sizes of an all_to_all must fit a mailbox; each chunk needs a place in a buffer.
  const size_t sizes = ranks * sizeof(uint64_t);
  const size_t places = several ? 2 * ranks * kSmallestPiece : ranks * kCacheLineBytes;
  return {.ranks = static_cast<int>(layout.ranks_on[static_cast<size_t>(layout.my_host())].size()),
          .writers = layout.size(),
          .mailbox_bytes =
              CallCheck::mailbox_bytes(std::max(std::min(tuning.small_bytes, most), sizes)),
          .buffer_bytes =
              std::max(several ? tuning.network_buffer_bytes : tuning.buffer_bytes, places)};
}

std::unique_ptr<SharedSegment> segment_of(transport::Meeting& meeting,
                                          const topology::GroupLayout& layout,
                                          std::span<const int> names, const Tuning& tuning,
                                          const transport::WaitLimit& limit) {
  const transport::SegmentShape shape = segment_shape(layout, tuning);
  const size_t size = SharedSegment::size_bytes(shape);
  std::vector<int> here;
  for (const int rank : layout.ranks_on[static_cast<size_t>(layout.my_host())]) {
    here.push_back(names[static_cast<size_t>(rank)]);
  }
  // Sizes are the same on all hosts, so the first rank of all tells them.
  const std::string wanted = fmt::format("{}/{}", shape.mailbox_bytes, shape.buffer_bytes);
  if (layout.rank == 0) meeting.set("shape", wanted);
  if (const std::string theirs = meeting.get("shape", limit); theirs != wanted) {
    throw ConfigError(
        "rank {} has mailbox and buffer sizes {}, rank {} has {}; set the SMDDP_ variables alike "
        "on all "
        "ranks",
        names[static_cast<size_t>(layout.rank)], wanted, names.front(), theirs);
  }
  const std::string key = fmt::format("memory/{}", layout.my_host());
  std::shared_ptr<SharedMemory> memory;
  if (layout.my_local() == 0) {
    memory = std::make_shared<SharedMemory>(SharedMemory::create(size));
    meeting.set(key, memory->address());
  } else {
    memory = std::make_shared<SharedMemory>(SharedMemory::open(meeting.get(key, limit), size));
  }
  auto segment = std::make_unique<SharedSegment>(memory, shape, layout.my_local(), std::move(here));
  segment->join(limit, [&] { meeting.look(); });
  memory->close_address();
  return segment;
}

}  // namespace smp::collectives
