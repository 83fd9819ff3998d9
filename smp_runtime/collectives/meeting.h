// SPDX-License-Identifier: Apache-2.0
// Where all ranks of a group come together at the start of a collective: each leaves a mailbox,
// sees everybody's, and knows that all are done with the collective before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "smp_runtime/collectives/call_header.h"
#include "smp_runtime/collectives/group_layout.h"
#include "smp_runtime/collectives/host_exchange.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

class HostWire;

/// For one thread at a time. The ranks of a host meet on its segment; then the first of each host
/// swap the mailboxes of their hosts, and put those of the others on the segment, too.
class Meeting {
 public:
  /// `names` by group rank; `wire` is null for a group on one host. All outlive this.
  Meeting(const GroupLayout& layout, transport::SharedSegment& segment, HostWire* wire,
          std::span<const int> names);

  /// Size of the segment's mailboxes for payloads of up to that many bytes.
  [[nodiscard]] static size_t mailbox_bytes(size_t payload_bytes);
  /// How much a mailbox can carry.
  [[nodiscard]] size_t payload_bytes() const;

  /// Leaves a mailbox, waits for everybody's and compares. Throws HostError, on all ranks, naming
  /// ranks and shapes, if their calls do not match.
  void agree(const CallHeader& call, ConstBytes payload, const transport::WaitLimit& limit);
  /// What a rank of the group left the last time. Stays until the time after the next.
  [[nodiscard]] ConstBytes payload(int rank) const;

 private:
  void exchange_mailboxes(const transport::WaitLimit& limit);
  [[nodiscard]] size_t written_bytes(int rank) const;

  const GroupLayout& layout_;
  transport::SharedSegment& segment_;
  HostWire* wire_;
  std::vector<int> names_;
  uint64_t meetings_ = 0;
};

}  // namespace smp::collectives
