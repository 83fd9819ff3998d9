// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/smddp/collectives/intra_node.h"

#include <algorithm>
#include <cstring>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/collectives/reduce_kernels.h"

// Why four buffers are enough (a segment has more, for HierarchicalSchedule). In run_rounds(),
// round c of a rank lies in buffer c mod 4; the rank copies round c+1 in, publishes, then waits
// until all have published round c, and reads round c. A rank that is about to copy round c+4 in
// has waited for the publication of round c+2 by all, which they do after reading round c: nobody
// reads buffer c mod 4 any more. Between two collectives a CallCheck orders everything.

namespace smp::collectives {
namespace {

size_t rounds(size_t longest, size_t piece) { return (longest + piece - 1) / piece; }

/// The part of `bytes` that round number `round` of pieces of `piece` bytes covers; may be empty.
template <typename Span>
Span piece_of(Span bytes, size_t round, size_t piece) {
  const size_t start = std::min(bytes.size(), round * piece);
  return bytes.subspan(start, std::min(piece, bytes.size() - start));
}

}  // namespace

std::vector<Cut> cut_evenly(size_t size_bytes, size_t element_bytes, size_t count) {
  const size_t elements = size_bytes / element_bytes;
  std::vector<Cut> cuts;
  size_t offset = 0;
  for (size_t part = 0; part < count; ++part) {
    const size_t size = (elements / count + (part < elements % count ? 1 : 0)) * element_bytes;
    cuts.push_back({.offset_bytes = offset, .size_bytes = size});
    offset += size;
  }
  return cuts;
}

IntraNodeCollectives::IntraNodeCollectives(transport::SharedSegment& segment)
    : segment_(segment),
      ranks_(static_cast<size_t>(segment.ranks())),
      me_(static_cast<size_t>(segment.rank())),
      buffer_bytes_(segment.shape().buffer_bytes) {
  SMP_CHECK(buffer_bytes_ >= kCacheLineBytes * ranks_, "buffers of {} bytes for {} ranks",
            buffer_bytes_, ranks_);
}

/// Four of the buffers, so that they stay in the caches.
std::byte* IntraNodeCollectives::buffer(int rank, size_t round) const {
  return segment_.buffer(rank, round % 4);
}

/// Round by round: copies the next one in and tells so, waits until all have copied this one in,
/// and uses it.
template <typename CopyIn, typename Use>
void IntraNodeCollectives::run_rounds(size_t count, const WaitLimit& limit, const CopyIn& copy_in,
                                      const Use& use) {
  const auto publish = [&](size_t round) {
    if (round >= count) return uint32_t{0};
    copy_in(round);
    return segment_.publish();
  };
  uint32_t step = publish(0);
  for (size_t round = 0; round < count; ++round) {
    const uint32_t next = publish(round + 1);
    segment_.wait_for_all(step, limit);
    step = next;
    use(round);
  }
}

void IntraNodeCollectives::reduce_chunks(std::span<const ConstBytes> inputs, Bytes output,
                                         const Reduction& reduction, const WaitLimit& limit) {
  const size_t piece = buffer_bytes_ / ranks_ / kCacheLineBytes * kCacheLineBytes;
  const size_t count = rounds(output.size(), piece);
  const size_t element = size_bytes(reduction.type);

  const auto copy_in = [&](size_t round) {
    for (size_t chunk = 0; chunk < ranks_; ++chunk) {
      if (chunk == me_) continue;  // its owner reads it where it is
      copy(buffer(segment_.rank(), round) + chunk * piece, piece_of(inputs[chunk], round, piece));
    }
  };

  std::vector<const std::byte*> sources(ranks_);
  run_rounds(count, limit, copy_in, [&](size_t round) {
    const ConstBytes own = piece_of(inputs[me_], round, piece);
    if (own.empty()) return;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      sources[rank] = buffer(static_cast<int>(rank), round) + me_ * piece;
    }
    sources[me_] = own.data();
    reduce(reduction.type, reduction.op, sources, piece_of(output, round, piece).data(),
           own.size() / element, reduction.divisor);
  });
}

void IntraNodeCollectives::gather_chunks(std::span<const Bytes> chunks, std::span<const int> owners,
                                         bool wants, const WaitLimit& limit) {
  std::vector<size_t> owned(ranks_, 0);  // chunks of each rank so far
  std::vector<size_t> place(chunks.size());
  size_t longest = 0;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    place[chunk] = owned[static_cast<size_t>(owners[chunk])]++;
    longest = std::max(longest, chunks[chunk].size());
  }
  const size_t most = std::max<size_t>(*std::max_element(owned.begin(), owned.end()), 1);
  const size_t piece = buffer_bytes_ / most / kCacheLineBytes * kCacheLineBytes;
  SMP_CHECK(piece > 0, "buffers of {} bytes are too small for {} chunks", buffer_bytes_, most);
  const size_t count = rounds(longest, piece);

  const auto copy_in = [&](size_t round) {
    for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      if (owners[chunk] != segment_.rank()) continue;
      copy(buffer(segment_.rank(), round) + place[chunk] * piece,
           piece_of(ConstBytes(chunks[chunk]), round, piece));
    }
  };

  run_rounds(count, limit, copy_in, [&](size_t round) {
    for (size_t chunk = 0; wants && chunk < chunks.size(); ++chunk) {
      if (owners[chunk] == segment_.rank()) continue;
      const Bytes to = piece_of(chunks[chunk], round, piece);
      copy(to.data(), {buffer(owners[chunk], round) + place[chunk] * piece, to.size()});
    }
  });
}

void IntraNodeCollectives::all_reduce(ConstBytes input, Bytes output, const Reduction& reduction,
                                      bool wants, const WaitLimit& limit) {
  const size_t element = size_bytes(reduction.type);
  const std::vector<Cut> cuts = cut_evenly(input.size(), element, ranks_);
  const size_t piece = buffer_bytes_ / ranks_ / kCacheLineBytes * kCacheLineBytes;
  const size_t count = rounds(cuts.front().size_bytes, piece);
  const auto part = [&](auto bytes, size_t chunk, size_t round) {
    return piece_of(bytes.subspan(cuts[chunk].offset_bytes, cuts[chunk].size_bytes), round, piece);
  };

  const auto copy_in = [&](size_t round) {
    for (size_t chunk = 0; chunk < ranks_; ++chunk) {
      if (chunk == me_) continue;
      copy(buffer(segment_.rank(), round) + chunk * piece, part(input, chunk, round));
    }
  };

  std::vector<const std::byte*> sources(ranks_);
  run_rounds(count, limit, copy_in, [&](size_t round) {
    // The owner's own chunk was not copied in: its place in the buffer takes the sum.
    const ConstBytes own = part(input, me_, round);
    std::byte* sum = buffer(segment_.rank(), round) + me_ * piece;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      sources[rank] = buffer(static_cast<int>(rank), round) + me_ * piece;
    }
    sources[me_] = own.data();
    if (!own.empty()) {
      reduce(reduction.type, reduction.op, sources, sum, own.size() / element, reduction.divisor);
    }
    segment_.wait_for_all(segment_.publish(), limit);
    for (size_t chunk = 0; wants && chunk < ranks_; ++chunk) {
      const Bytes to = part(output, chunk, round);
      copy(to.data(), {buffer(static_cast<int>(chunk), round) + chunk * piece, to.size()});
    }
  });
}

void IntraNodeCollectives::all_to_all(std::span<const ConstBytes> inputs,
                                      std::span<const Bytes> outputs, size_t longest,
                                      const WaitLimit& limit) {
  const size_t piece = buffer_bytes_ / ranks_ / kCacheLineBytes * kCacheLineBytes;
  const size_t count = rounds(longest, piece);

  const auto copy_in = [&](size_t round) {
    for (size_t peer = 0; peer < ranks_; ++peer) {
      if (peer == me_) continue;
      copy(buffer(segment_.rank(), round) + peer * piece, piece_of(inputs[peer], round, piece));
    }
  };

  if (!outputs[me_].empty() && outputs[me_].data() != inputs[me_].data()) {
    std::memmove(outputs[me_].data(), inputs[me_].data(), outputs[me_].size());
  }
  run_rounds(count, limit, copy_in, [&](size_t round) {
    for (size_t peer = 0; peer < ranks_; ++peer) {
      if (peer == me_) continue;
      const Bytes to = piece_of(outputs[peer], round, piece);
      copy(to.data(), {buffer(static_cast<int>(peer), round) + me_ * piece, to.size()});
    }
  });
}

}  // namespace smp::collectives
