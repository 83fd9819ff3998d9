// SPDX-License-Identifier: Apache-2.0
// Messages through memory that two processes of a host share: no system call, and no thread between
// the one who sends and the one who receives, for what is small.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/process_watch.h"
#include "smp_runtime/transport/shared_memory.h"
#include "smp_runtime/transport/shared_ring.h"

namespace smp::transport {

class SharedMemoryChannel : public MessageChannel {
 public:
  /// Rings from which this process reads, and into which it writes.
  struct Rings {
    std::shared_ptr<SharedMemory> inward_memory, outward_memory;
    SharedRing inward, outward;
  };

  SharedMemoryChannel(Rings rings, pid_t peer_process);

  /// Throws HostError once the peer's process has ended, however it did.
  void send(const PackedMessage& message) override;
  /// For messages of at most kSmallBytes that fit the ring as it is now.
  bool send_at_once(const PackedMessage& message) override;
  /// The same; first comes all that the peer has written.
  std::optional<ArrivingMessage> receive() override;
  void give_credit() override { rings_.inward.give_credit(); }
  void await_credit(const WaitLimit& limit) override;
  void abort() override;

  static constexpr size_t kSmallBytes = 64 * 1024;

 private:
  void write(std::span<const std::byte> bytes);
  void read(std::span<std::byte> bytes);
  void throw_if_aborted() const;
  [[noreturn]] void throw_ended() const;

  Rings rings_;
  const pid_t peer_process_;
  ProcessWatch peer_watch_;
  uint32_t taken_credits_ = 0;  // of the sending thread
  std::atomic<bool> aborted_{false};
};

}  // namespace smp::transport
