// SPDX-License-Identifier: Apache-2.0
// The barrier at the start of each collective: every rank publishes its call's signature and a
// small payload, reads everybody's, and knows that all are done with the collective before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "smp_runtime/smddp/collectives/call_signature.h"
#include "smp_runtime/smddp/collectives/intra_node.h"
#include "smp_runtime/smddp/collectives/mailbox_message.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

class InterNodeCollectives;

/// For one thread at a time. The ranks of a host write into mailboxes of its shared segment; then
/// the first ranks of the hosts exchange these, and copy those of other hosts into the segment,
/// too.
class CallCheck {
 public:
  /// `names` by group rank; `inter_node` is null for a group on one host. All outlive this. `key`
  /// proves what other hosts send; none: they are believed.
  CallCheck(const topology::GroupLayout& layout, transport::SharedSegment& segment,
            InterNodeCollectives* inter_node, std::span<const int> names,
            std::optional<MacKey> key);

  /// Size of the segment's mailboxes for payloads of up to that many bytes.
  [[nodiscard]] static size_t mailbox_bytes(size_t payload_bytes);
  /// Bytes that a mailbox can carry.
  [[nodiscard]] size_t payload_bytes() const;

  /// Fills this rank's mailbox, waits for everybody's and compares. Throws HostError, on all ranks,
  /// naming ranks and shapes, if their calls do not match.
  void agree(const CallSignature& call, ConstBytes payload, const transport::WaitLimit& limit);
  /// A rank's payload of the last call. It stays until the call after the next. Throws HostError
  /// if it is not of that size.
  [[nodiscard]] ConstBytes payload(int rank, size_t size_bytes) const;
  /// Copies it, which fills `room`.
  void take_payload(int rank, Bytes room) const { copy(room, payload(rank, room.size())); }

 private:
  void exchange_mailboxes(const transport::WaitLimit& limit);

  const topology::GroupLayout& layout_;
  transport::SharedSegment& segment_;
  InterNodeCollectives* inter_node_;
  std::vector<int> names_;
  MailboxMessages messages_;
  uint64_t calls_ = 0;
};

}  // namespace smp::collectives
