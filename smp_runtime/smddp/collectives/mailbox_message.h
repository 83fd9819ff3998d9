// SPDX-License-Identifier: Apache-2.0
// The mailboxes of one host's ranks, which travel to the other hosts as one message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "smp_runtime/core/cache_line.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/smddp/collectives/call_signature.h"
#include "smp_runtime/smddp/collectives/intra_node.h"

namespace smp::collectives {

/// A mailbox begins with the call's signature and the payload's size, padded to a line so that
/// payloads are aligned.
inline constexpr size_t kMailboxHeaderBytes =
    whole_cache_lines(sizeof(CallSignature) + sizeof(uint64_t));

[[nodiscard]] uint64_t payload_size(const std::byte* mailbox);

/// The place of a message among all of a group.
struct MessagePlace {
  uint64_t sequence = 0;  ///< of the collective
  uint64_t host = 0;      ///< the sender's
};

/// Packs messages and takes them apart, each mailbox as long as what was written. Where there is a
/// key they carry a code over their place, all headers, and payloads of at most kCoveredBytes.
/// Longer ones are data of tensors, which carry none.
class MailboxMessages {
 public:
  static constexpr size_t kCoveredBytes = 1024;

  MailboxMessages(size_t mailbox_bytes, std::optional<MacKey> key)
      : mailbox_bytes_(mailbox_bytes), key_(key) {}

  /// Room for the message of a host of so many ranks.
  [[nodiscard]] size_t longest_bytes(size_t ranks) const;

  [[nodiscard]] std::vector<std::byte> pack(const MessagePlace& place,
                                            std::span<const std::byte* const> mailboxes) const;

  /// The mailboxes of the `ranks` ranks of a host, as parts of `message`. Throws HostError for
  /// bytes that are no such message, or that do not come from a rank of the job.
  [[nodiscard]] std::vector<ConstBytes> unpack(const MessagePlace& place, ConstBytes message,
                                               size_t ranks) const;

 private:
  size_t mailbox_bytes_;
  std::optional<MacKey> key_;
};

}  // namespace smp::collectives
