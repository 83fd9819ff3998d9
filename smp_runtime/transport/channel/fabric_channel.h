// SPDX-License-Identifier: Apache-2.0
// Messages to a process of another host, through libfabric: EFA where there is a device, else TCP.
//
// A frame holds small heads and small tensors whole; then come, as messages of their own, what did
// not fit and the other tensors, which are sent from and received into their own memory. The
// receiver knows from the frame what follows, so that everything of a message is on its way at
// once.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"

namespace smp::transport {

class FabricChannel : public MessageChannel {
 public:
  struct Ends {
    int rank;
    int peer;  ///< connected, of `link` and `detector`
  };

  /// `link` and `detector` outlive the channel, which may share them with channels to other peers.
  FabricChannel(FabricLink& link, const FailureDetector& detector, const Ends& ends);

  /// Throw HostError once the peer is lost, naming what became of its connection.
  void send(const PackedMessage& message) override;
  /// For messages of at most kSmallBytes.
  bool send_at_once(const PackedMessage& message) override;
  std::optional<ArrivingMessage> receive() override;
  void give_credit() override;
  void await_credit(const WaitLimit& limit) override;
  void abort() override;

  static constexpr size_t kSmallBytes = 16 * 1024;

 private:
  using Handle = FabricLink::Handle;
  enum class Kind : uint64_t { kFrame = 1, kRest, kTensor, kCredit };

  [[nodiscard]] static uint64_t tag(Kind kind, int source, uint32_t sequence, size_t index = 0);
  std::vector<Handle> post(const PackedMessage& message);
  void post_frame_receive();
  void wait(std::span<const Handle> messages, const WaitLimit& limit);
  void look() const;

  FabricLink& link_;
  const FailureDetector& detector_;
  const Ends ends_;
  uint32_t sent_ = 0;                              // of the sending thread, as awaited_
  uint32_t awaited_ = 0;                           // credits
  uint32_t received_ = 0;                          // of the receiving thread, as what follows
  uint32_t given_ = 0;                             // credits
  std::shared_ptr<std::vector<std::byte>> frame_;  // of the next message
  Handle frame_receive_;
  std::atomic<bool> aborted_{false};
};

}  // namespace smp::transport
