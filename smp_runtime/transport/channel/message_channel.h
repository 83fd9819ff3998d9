// SPDX-License-Identifier: Apache-2.0
// Messages with tensors to and from one other rank, whatever carries their bytes. Where both have a
// GPU of their own, tensors of a GPU go apart from the rest of the message, by NCCL.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/byte_channel.h"
#include "smp_runtime/transport/channel/staged_copies.h"
#include "smp_runtime/transport/channel/tensor_message.h"
#include "smp_runtime/transport/nccl/nccl_channel.h"

namespace smp::transport {

/// One thread at a time may send, one may receive; abort() and end() may come from any. A call that
/// fails, or is aborted, throws HostError.
class MessageChannel {
 public:
  /// What proves that the frame and the head of a message come from the peer; tensors are not
  /// covered. The bytes may be unpickled, which runs code.
  struct Codes {
    MacKey key;  ///< of these two ranks alone, and of this connection
    uint64_t rank;
    uint64_t peer;
  };
  struct Settings {
    int cuda_device = -1;               ///< see ArrivingMessage
    std::chrono::milliseconds timeout;  ///< of copies between a device and the CPU
    std::optional<Codes> codes;         ///< none where nobody but the peer reaches the channel
  };

  /// `gpus` is null where no tensor goes apart.
  MessageChannel(std::unique_ptr<ByteChannel> bytes, std::unique_ptr<NcclChannel> gpus,
                 const Settings& settings);

  /// Returns once the message's memory is no longer needed.
  void send(const Outgoing& message);
  /// Sends if that takes no waiting and little time; else does nothing and returns false.
  bool send_at_once(const Outgoing& message);
  /// Tells the peer that nothing follows.
  void send_fin();
  /// Waits for the next message, whose source is left open, without a limit: an idle peer sends
  /// none. nullopt: the FIN. Nothing of a message is looked at before its codes.
  std::optional<Message> receive();

  /// Ends what waits for the peer and all that is called later; a message that has arrived is still
  /// copied to its device.
  void abort();
  /// The same, and ends copies, too.
  void end();

 private:
  void seal(PackedMessage& message) const;
  [[noreturn]] void refuse() const;
  void send_packed(const std::shared_ptr<PackedMessage>& message);
  [[nodiscard]] Apart apart() const;
  [[nodiscard]] StagedCopies::Settings copying();

  const std::unique_ptr<ByteChannel> bytes_;
  const std::unique_ptr<NcclChannel> gpus_;
  const Settings settings_;
  StagedCopies sent_copies_;      // of the sending thread
  StagedCopies received_copies_;  // of the receiving one
  uint64_t sent_ = 0;             // messages, of the sending thread
  uint64_t received_ = 0;         // of the receiving one
  std::atomic<bool> ended_{false};
};

}  // namespace smp::transport
