// SPDX-License-Identifier: Apache-2.0
// Collectives of a group over several hosts: messages over a FabricLink, and within each host its
// shared segment, as HierarchicalSchedule says.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/smddp/collectives/chunk_plan.h"
#include "smp_runtime/smddp/collectives/intra_node.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/meeting.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

// The tags of messages between hosts: everything that tells two messages of a group apart that may
// be on their way at once, because networks such as EFA keep no order.

enum class MessageKind : uint8_t { kMailboxes = 1, kArrival = 2, kDeparture = 3, kPair = 4 };

struct MessageTag {
  MessageKind kind{};
  uint64_t sequence = 0;  ///< of the collective
  uint64_t round = 0;
  uint64_t chunk = 0;
  int source = 0;  ///< host, or rank for kPair
};

/// Packs the low bits of each number: collectives follow each other, and rounds, too.
constexpr uint64_t message_tag(const MessageTag& message) {
  return static_cast<uint64_t>(message.kind) << 60 | (message.sequence & 0xfff) << 48 |
         (message.round & 0xffff) << 32 | (message.chunk & 0xffff) << 16 |
         (static_cast<uint64_t>(message.source) & 0xffff);
}

/// Limits of waits that depend on another rank's wait: that one ends first and knows the reason.
[[nodiscard]] transport::WaitLimit later(transport::WaitLimit limit, std::chrono::seconds by);

/// One rank's end. For one thread at a time, as SharedSegment; all ranks of the group make the same
/// calls with the same sizes and `sequence` numbers, which CallCheck sees to. All functions may
/// throw HostError, naming the rank of another host that is to blame.
class InterNodeCollectives {
 public:
  using WaitLimit = transport::WaitLimit;
  using Handle = transport::FabricLink::Handle;

  /// Connects with the ranks of the other hosts; collective among those that met. `names` by group
  /// rank.
  InterNodeCollectives(const topology::GroupLayout& layout, transport::SharedSegment& segment,
                       std::span<const int> names, transport::Meeting& meeting,
                       const transport::Network& network, const WaitLimit& limit);

  /// Among the first ranks of all hosts: `mine` goes to the others, theirs to `received[host]`,
  /// cut to what came. All of that lies in `keeps`, which stays until no message needs it. In a
  /// group of many hosts they hand it on, see mailbox_relay.h.
  void exchange(uint64_t sequence, ConstBytes mine, std::span<Bytes> received,
                const std::shared_ptr<void>& keeps, const WaitLimit& limit);

  /// The HierarchicalSchedule of `plan`. `inputs` and `outputs` are by chunk; those that this rank
  /// does not have or want are not looked at. Rounds are on their way while others are added up.
  void run(uint64_t sequence, const ChunkPlan& plan, std::span<const ConstBytes> inputs,
           std::span<const Bytes> outputs, const Reduction& reduction, const WaitLimit& limit);

  /// `inputs[r]` goes to rank r's `outputs[my rank]` for the ranks of other hosts. Sizes fit.
  void all_to_all(uint64_t sequence, std::span<const ConstBytes> inputs,
                  std::span<const Bytes> outputs, const WaitLimit& limit);

  /// See FailureDetector.
  void completed(uint64_t collectives);
  void tell(std::string_view reason);
  void leave(const WaitLimit& limit);

  [[nodiscard]] const std::string& provider() const { return link_.provider(); }
  /// Settings with which the link was opened.
  [[nodiscard]] const transport::FabricSettings& settings() const { return settings_; }
  /// See FailureDetector; for a rank of another host.
  [[nodiscard]] std::string failure_of(int rank) const { return detector_->failure_of(rank); }

 private:
  void relay(uint64_t sequence, ConstBytes mine, std::span<Bytes> received, const WaitLimit& limit);
  void connect_all(std::span<const int> names, transport::Meeting& meeting, const WaitLimit& limit);
  [[nodiscard]] std::function<void()> look(uint64_t sequence, const WaitLimit& limit);

  const topology::GroupLayout& layout_;
  transport::SharedSegment& segment_;
  const transport::FabricSettings settings_;
  transport::FabricLink link_;
  std::unique_ptr<transport::FailureDetector> detector_;
};

}  // namespace smp::collectives
