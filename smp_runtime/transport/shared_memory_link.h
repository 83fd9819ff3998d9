// SPDX-License-Identifier: Apache-2.0
// Pairs of ranks of one host, which talk through memory that they share: a ring each way.
//
// A short message is eager: it waits at the receiver until a receive is posted. A long one is a
// rendezvous: request to send, clear to send once the receiver has memory for it, data; so nothing
// large waits anywhere but with its sender.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <utility>
#include <vector>

#include "smp_runtime/transport/link.h"
#include "smp_runtime/transport/shared_memory.h"

namespace smp::transport {

struct Doorbell;
struct LinkFrame;

/// Does not notice that a peer has ended (SharedSegment does); sends to one that cannot be reached
/// any more fail.
class SharedMemoryLink : public Link {
 public:
  /// Up to here a message does not wait for its receiver.
  static constexpr size_t kShortBytes = 32 * 1024;

  /// `names` are those of all ranks of the group, for messages; `rank` is this one's place.
  /// Throws HostError.
  SharedMemoryLink(int rank, std::vector<std::string> names);
  ~SharedMemoryLink() override;

  [[nodiscard]] std::string address() const override { return memory_.address(); }
  void connect(int peer, const std::string& name, const std::string& address) override;
  [[nodiscard]] bool is_connected(int peer) const override;

  Handle send(int peer, uint64_t tag, std::span<const std::byte> bytes,
              std::shared_ptr<void> keeps = nullptr) override;
  Handle receive(int peer, uint64_t tag, std::span<std::byte> bytes, uint64_t ignored = 0,
                 std::shared_ptr<void> keeps = nullptr) override;
  void cancel(const Handle& message) override;

  void wait_for_change(std::chrono::milliseconds longest) override;
  void wake() override;

 private:
  struct Posted;
  struct Outgoing;
  struct Arrival;
  struct Peer;
  using PostedPtr = std::shared_ptr<Posted>;
  using Place = std::pair<int, uint64_t>;  // a peer, and the number that the sender gave

  [[nodiscard]] static Doorbell& doorbell_of(const SharedMemory& memory);
  [[nodiscard]] Peer& peer_at(int rank);
  void open(int from, const std::string& address);
  void queue(int to, const LinkFrame& frame, PostedPtr message);
  void finish(Posted& message, std::string error);

  bool drive();
  bool write_to(Peer& to);
  bool read_from(int from);
  void begin_body(int from);
  void end_body(int from);
  void arrive(Arrival arrival);
  void deliver(const PostedPtr& message, const Arrival& arrival);

  const int rank_;
  const std::vector<std::string> names_;
  SharedMemory memory_;  // of the rings into which the others write
  std::vector<Peer> peers_;
  std::list<PostedPtr> posted_;           // receives without a message, in their order
  std::list<Arrival> unexpected_;         // messages without a receive, in their order
  std::map<Place, PostedPtr> requested_;  // sends whose data nobody has asked for yet
  std::map<Place, PostedPtr> cleared_;    // receives whose data were asked for; null: given up
  uint64_t requests_ = 0;
  bool changed_ = false;
  std::atomic<bool> woken_{false};
};

}  // namespace smp::transport
