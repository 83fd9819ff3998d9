// SPDX-License-Identifier: Apache-2.0
// Collectives of a group whose ranks are all on one host, through their shared segment. What the
// ranks of each of several hosts do among themselves is in hierarchical_schedule.h, but for pairs
// of ranks that swap within a host.
//
// Data goes in rounds: a rank copies what a round moves into its next buffer and publishes; the
// others read it there. Of the buffers of a rank for rounds one is written while older ones are
// read: a buffer may be written again when all its readers have published a later step that the
// writer has waited for, and the loops below need no more steps for that (see intra_node.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "smp_runtime/smddp/collectives/call_signature.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

using ConstBytes = std::span<const std::byte>;
using Bytes = std::span<std::byte>;

/// Nothing to do where `from` is empty or at `to` already.
inline void copy(std::byte* to, ConstBytes from) {
  if (!from.empty() && to != from.data()) std::memcpy(to, from.data(), from.size());
}
inline void copy(Bytes to, ConstBytes from) { copy(to.data(), from); }

/// Combination of elements; `divisor` makes a sum an average at the end.
struct Reduction {
  ElementType type;
  ReduceOp op;
  int divisor = 1;
};

/// For one thread at a time. All ranks of the segment call the same functions in the same order
/// with the same sizes; CallCheck is how they make sure of it. All may throw HostError (see
/// SharedSegment).
///
/// Chunks are parts of a whole, each owned by one rank of the host.
class IntraNodeCollectives {
 public:
  using WaitLimit = transport::WaitLimit;

  explicit IntraNodeCollectives(transport::SharedSegment& segment);

  /// The sum over the ranks of `inputs[r]` goes to rank r's `output`, which may be the very memory
  /// of its own input. All have equal sizes.
  void reduce_chunks(std::span<const ConstBytes> inputs, Bytes output, const Reduction& reduction,
                     const WaitLimit& limit);

  /// Owners' chunks go to all: `chunks[c]` is read where it is owned, by local rank `owners[c]`,
  /// and written elsewhere. A rank with `wants` false takes part but receives nothing.
  void gather_chunks(std::span<const Bytes> chunks, std::span<const int> owners, bool wants,
                     const WaitLimit& limit);

  /// reduce_chunks and gather_chunks in one pass over the data, with rank r owning chunk r.
  /// `wants` as above. `output` may be `input`.
  void all_reduce(ConstBytes input, Bytes output, const Reduction& reduction, bool wants,
                  const WaitLimit& limit);

  /// `inputs[r]` goes to rank r's `outputs[my rank]`. Each rank's sizes fit the others';
  /// `longest` is the largest of all on any rank.
  void all_to_all(std::span<const ConstBytes> inputs, std::span<const Bytes> outputs,
                  size_t longest, const WaitLimit& limit);

 private:
  [[nodiscard]] std::byte* buffer(int rank, size_t round) const;
  template <typename CopyIn, typename Use>
  void run_rounds(size_t count, const WaitLimit& limit, const CopyIn& copy_in, const Use& use);

  transport::SharedSegment& segment_;
  size_t ranks_;
  size_t me_;
  size_t buffer_bytes_;
};

/// Cuts `size_bytes` into `count` parts of whole elements, the first ones longer by one element
/// where it does not come out even.
struct Cut {
  size_t offset_bytes;
  size_t size_bytes;
};
[[nodiscard]] std::vector<Cut> cut_evenly(size_t size_bytes, size_t element_bytes, size_t count);

}  // namespace smp::collectives
