// SPDX-License-Identifier: Apache-2.0
// Messages through memory that two processes of a host share: no system call, and no thread between
// the one who sends and the one who receives, for what is small. A ring holds them one behind the
// other, as they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "smp_runtime/transport/byte_channel.h"
#include "smp_runtime/transport/process_watch.h"
#include "smp_runtime/transport/shared_memory.h"
#include "smp_runtime/transport/shared_ring.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

class SharedMemoryChannel : public ByteChannel {
 public:
  /// One of the rings in a memory.
  struct Place {
    std::shared_ptr<SharedMemory> memory;
    size_t ring = 0;
  };

  [[nodiscard]] static size_t memory_bytes(size_t rings) {
    return rings * SharedRing::size_bytes();
  }

  /// Reads from `inward`, writes into `outward`.
  SharedMemoryChannel(const Place& inward, const Place& outward, pid_t peer_process);

  /// Throws HostError once the peer's process has ended, however it did.
  void send(std::span<const Part> message, const Owner& owner) override;
  /// For messages of at most kSmallBytes that fit the ring as it is now.
  bool send_at_once(std::span<const Part> message, const Owner& owner) override;
  /// The same; first comes all that the peer has written.
  void receive_header(Room header) override { read(header); }
  void receive(std::span<const Room> parts, const Owner& owner) override;
  void give_credit() override { inward_.give_credit(); }
  void await_credit(const WaitLimit& limit) override;
  void abort() override;

  static constexpr size_t kSmallBytes = 64 * 1024;

 private:
  void write(Part bytes);
  void read(Room bytes);
  void throw_if_aborted() const;
  [[noreturn]] void throw_ended() const;

  const std::shared_ptr<SharedMemory> inward_memory_, outward_memory_;
  SharedRing inward_, outward_;
  const pid_t peer_process_;
  ProcessWatch peer_watch_;
  uint32_t taken_credits_ = 0;  // of the sending thread
  std::atomic<bool> aborted_{false};
};

/// By rank: null where there is none: this rank, ranks of other hosts, and those of this host whose
/// memory one of the two may not open. Collective; throws HostError if a member does not come in
/// time.
[[nodiscard]] std::vector<std::unique_ptr<ByteChannel>> connect_shared_memory(
    const StoreGather& group);

}  // namespace smp::transport
