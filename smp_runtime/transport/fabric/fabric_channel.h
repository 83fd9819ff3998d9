// SPDX-License-Identifier: Apache-2.0
// Messages to a process of another host, through libfabric: EFA where there is a device, else TCP.
//
// A packet holds what fits of a message: its header and the small parts. The others follow as
// messages of the link, sent from and received into their own memory. The receiver knows which,
// since it counts as the sender does, so that everything of a message is on its way at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "smp_runtime/transport/byte_channel.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

class FabricChannel : public ByteChannel {
 public:
  struct Ends {
    int rank;
    int peer;  ///< connected, of `link` and `detector`
  };

  /// `link` and `detector` outlive the channel, which may share them with channels to other peers.
  FabricChannel(FabricLink& link, const FailureDetector& detector, const Ends& ends);

  /// Throw HostError once the peer is lost, naming what became of its connection.
  void send(std::span<const Part> message, const Owner& owner) override;
  /// For messages of at most kSmallBytes.
  bool send_at_once(std::span<const Part> message, const Owner& owner) override;
  void receive_header(Room header) override;
  void receive(std::span<const Room> parts, const Owner& owner) override;
  void give_credit() override;
  void await_credit(const WaitLimit& limit) override;
  void abort() override;

  static constexpr size_t kSmallBytes = 16 * 1024;
  /// Most of a message that goes with its header, and largest header.
  static constexpr size_t kPacketBytes = 4096;

 private:
  using Handle = FabricLink::Handle;
  using Buffer = std::vector<std::byte>;
  enum class Kind : uint64_t { kPacket = 1, kPart, kCredit };

  /// Decides which parts of a message go with its packet: those that still fit.
  struct Packing {
    size_t left = kPacketBytes;
    size_t parts = 0;  ///< asked for so far

    bool takes(size_t size_bytes) {
      ++parts;
      if (size_bytes > left) return false;
      left -= size_bytes;
      return true;
    }
  };

  [[nodiscard]] static uint64_t tag(Kind kind, int source, uint32_t sequence, size_t index = 0);
  std::vector<Handle> post(std::span<const Part> message, const Owner& owner);
  void post_packet_receive();
  bool take(Room part);
  void wait(std::span<const Handle> messages, const WaitLimit& limit);
  void look() const;

  FabricLink& link_;
  const FailureDetector& detector_;
  const Ends ends_;
  uint32_t sent_ = 0;               // of the sending thread, as awaited_
  uint32_t awaited_ = 0;            // credits
  uint32_t received_ = 0;           // of the receiving thread, as what follows
  uint32_t given_ = 0;              // credits
  std::shared_ptr<Buffer> packet_;  // of the message that is being received
  Part rest_;                       // of it
  Packing packing_;                 // likewise
  std::shared_ptr<Buffer> next_packet_;
  Handle packet_receive_;
  std::atomic<bool> aborted_{false};
};

/// Ends that the channels to other hosts share; null in a group on one. They outlive the channels.
struct FabricEnds {
  std::unique_ptr<FabricLink> link;
  std::unique_ptr<FailureDetector> detector;
};

/// `channels` by rank; those that are null get a FabricChannel, but for this rank's own.
/// All ranks have null for the same pairs. Collective; throws ConfigError where there is no
/// provider or hosts have different ones, HostError if a rank does not come.
[[nodiscard]] FabricEnds connect_fabric(const StoreGather& group, const Network& network,
                                        std::vector<std::unique_ptr<ByteChannel>>& channels);

}  // namespace smp::transport
