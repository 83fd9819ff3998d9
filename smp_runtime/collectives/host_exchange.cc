// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/collectives/host_exchange.h"

#include <algorithm>
#include <cstring>

#include "smp_runtime/collectives/reduce_kernels.h"
#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/error.h"

// Why four buffers are enough (a segment has more, for ShareWalk). In walk(), chunk c of a rank
// lies in buffer c mod 4; the rank copies chunk c+1 in, publishes, then waits until all have
// published chunk c, and reads chunk c. A rank that is about to copy chunk c+4 in has waited for
// the publication of chunk c+2 by all, which they do after reading chunk c: nobody reads buffer c
// mod 4 any more. Between two collectives a CallCheck orders everything.

namespace smp::collectives {
namespace {

size_t chunks(size_t longest, size_t piece) { return (longest + piece - 1) / piece; }

/// The part of `bytes` that chunk number `chunk` of pieces of `piece` bytes covers; may be empty.
template <typename Span>
Span piece_of(Span bytes, size_t chunk, size_t piece) {
  const size_t start = std::min(bytes.size(), chunk * piece);
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

HostExchange::HostExchange(transport::SharedSegment& segment)
    : segment_(segment),
      ranks_(static_cast<size_t>(segment.ranks())),
      me_(static_cast<size_t>(segment.rank())),
      buffer_bytes_(segment.shape().buffer_bytes) {
  SMP_CHECK(buffer_bytes_ >= kCacheLineBytes * ranks_, "buffers of {} bytes for {} ranks",
            buffer_bytes_, ranks_);
}

/// Four of the buffers, so that they stay in the caches.
std::byte* HostExchange::buffer(int rank, size_t chunk) const {
  return segment_.buffer(rank, chunk % 4);
}

/// Chunk by chunk: copies the next one in and tells so, waits until all have copied this one in,
/// and uses it.
template <typename CopyIn, typename Use>
void HostExchange::walk(size_t count, const WaitLimit& limit, const CopyIn& copy_in,
                        const Use& use) {
  const auto publish = [&](size_t chunk) {
    if (chunk >= count) return uint32_t{0};
    copy_in(chunk);
    return segment_.publish();
  };
  uint32_t step = publish(0);
  for (size_t chunk = 0; chunk < count; ++chunk) {
    const uint32_t next = publish(chunk + 1);
    segment_.wait_for_all(step, limit);
    step = next;
    use(chunk);
  }
}

void HostExchange::barrier(const WaitLimit& limit) {
  segment_.wait_for_all(segment_.publish(), limit);
}

void HostExchange::reduce_shares(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                                 std::span<const int> owners, const Reduction& reduction,
                                 const WaitLimit& limit) {
  const size_t piece =
      buffer_bytes_ / std::max<size_t>(inputs.size(), 1) / kCacheLineBytes * kCacheLineBytes;
  SMP_CHECK(piece > 0, "buffers of {} bytes are too small for {} shares", buffer_bytes_,
            inputs.size());
  size_t longest = 0;
  for (const ConstBytes input : inputs) longest = std::max(longest, input.size());
  const size_t count = chunks(longest, piece);
  const size_t element = size_bytes(reduction.type);

  const auto copy_in = [&](size_t chunk) {
    for (size_t share = 0; share < inputs.size(); ++share) {
      if (owners[share] == segment_.rank()) continue;  // its owner reads it where it is
      copy(buffer(segment_.rank(), chunk) + share * piece, piece_of(inputs[share], chunk, piece));
    }
  };

  std::vector<const std::byte*> sources(ranks_);
  walk(count, limit, copy_in, [&](size_t chunk) {
    for (size_t share = 0; share < inputs.size(); ++share) {
      if (owners[share] != segment_.rank()) continue;
      const ConstBytes own = piece_of(inputs[share], chunk, piece);
      if (own.empty()) continue;
      for (size_t rank = 0; rank < ranks_; ++rank) {
        sources[rank] = buffer(static_cast<int>(rank), chunk) + share * piece;
      }
      sources[me_] = own.data();
      reduce(reduction.type, reduction.op, sources, piece_of(outputs[share], chunk, piece).data(),
             own.size() / element, reduction.divisor);
    }
  });
}

void HostExchange::share_all(std::span<const Bytes> shares, std::span<const int> owners, bool wants,
                             const WaitLimit& limit) {
  std::vector<size_t> owned(ranks_, 0);  // shares of each rank so far
  std::vector<size_t> place(shares.size());
  size_t longest = 0;
  for (size_t share = 0; share < shares.size(); ++share) {
    place[share] = owned[static_cast<size_t>(owners[share])]++;
    longest = std::max(longest, shares[share].size());
  }
  const size_t most = std::max<size_t>(*std::max_element(owned.begin(), owned.end()), 1);
  const size_t piece = buffer_bytes_ / most / kCacheLineBytes * kCacheLineBytes;
  SMP_CHECK(piece > 0, "buffers of {} bytes are too small for {} shares", buffer_bytes_, most);
  const size_t count = chunks(longest, piece);

  const auto copy_in = [&](size_t chunk) {
    for (size_t share = 0; share < shares.size(); ++share) {
      if (owners[share] != segment_.rank()) continue;
      copy(buffer(segment_.rank(), chunk) + place[share] * piece,
           piece_of(ConstBytes(shares[share]), chunk, piece));
    }
  };

  walk(count, limit, copy_in, [&](size_t chunk) {
    for (size_t share = 0; wants && share < shares.size(); ++share) {
      if (owners[share] == segment_.rank()) continue;
      const Bytes to = piece_of(shares[share], chunk, piece);
      copy(to.data(), {buffer(owners[share], chunk) + place[share] * piece, to.size()});
    }
  });
}

void HostExchange::all_reduce(ConstBytes input, Bytes output, const Reduction& reduction,
                              bool wants, const WaitLimit& limit) {
  const size_t element = size_bytes(reduction.type);
  const std::vector<Cut> cuts = cut_evenly(input.size(), element, ranks_);
  const size_t piece = buffer_bytes_ / ranks_ / kCacheLineBytes * kCacheLineBytes;
  const size_t count = chunks(cuts.front().size_bytes, piece);
  const auto part = [&](auto bytes, size_t slice, size_t chunk) {
    return piece_of(bytes.subspan(cuts[slice].offset_bytes, cuts[slice].size_bytes), chunk, piece);
  };

  const auto copy_in = [&](size_t chunk) {
    for (size_t slice = 0; slice < ranks_; ++slice) {
      if (slice == me_) continue;
      copy(buffer(segment_.rank(), chunk) + slice * piece, part(input, slice, chunk));
    }
  };

  std::vector<const std::byte*> sources(ranks_);
  walk(count, limit, copy_in, [&](size_t chunk) {
    // The owner's own slice was not copied in: its place in the buffer takes the sum.
    const ConstBytes own = part(input, me_, chunk);
    std::byte* sum = buffer(segment_.rank(), chunk) + me_ * piece;
    for (size_t rank = 0; rank < ranks_; ++rank) {
      sources[rank] = buffer(static_cast<int>(rank), chunk) + me_ * piece;
    }
    sources[me_] = own.data();
    if (!own.empty()) {
      reduce(reduction.type, reduction.op, sources, sum, own.size() / element, reduction.divisor);
    }
    segment_.wait_for_all(segment_.publish(), limit);
    for (size_t slice = 0; wants && slice < ranks_; ++slice) {
      const Bytes to = part(output, slice, chunk);
      copy(to.data(), {buffer(static_cast<int>(slice), chunk) + slice * piece, to.size()});
    }
  });
}

void HostExchange::all_to_all(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                              size_t longest, const WaitLimit& limit) {
  const size_t piece = buffer_bytes_ / ranks_ / kCacheLineBytes * kCacheLineBytes;
  const size_t count = chunks(longest, piece);

  const auto copy_in = [&](size_t chunk) {
    for (size_t peer = 0; peer < ranks_; ++peer) {
      if (peer == me_) continue;
      copy(buffer(segment_.rank(), chunk) + peer * piece, piece_of(inputs[peer], chunk, piece));
    }
  };

  if (!outputs[me_].empty() && outputs[me_].data() != inputs[me_].data()) {
    std::memmove(outputs[me_].data(), inputs[me_].data(), outputs[me_].size());
  }
  walk(count, limit, copy_in, [&](size_t chunk) {
    for (size_t peer = 0; peer < ranks_; ++peer) {
      if (peer == me_) continue;
      const Bytes to = piece_of(outputs[peer], chunk, piece);
      copy(to.data(), {buffer(static_cast<int>(peer), chunk) + me_ * piece, to.size()});
    }
  });
}

}  // namespace smp::collectives
