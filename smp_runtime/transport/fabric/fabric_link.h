// SPDX-License-Identifier: Apache-2.0
// Messages of bytes between ranks that share no memory: posted at once, complete later.
//
// A thread of the link drives the network, so that messages move while their rank computes, waits
// for another rank, or has left its collective.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "smp_runtime/core/file.h"
#include "smp_runtime/transport/fabric/fabric_endpoint.h"
#include "smp_runtime/transport/link.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// Safe to call from several threads.
class FabricLink : public Link {
 public:
  class Message : public Link::Message {
   public:
    using Link::Message::Message;

   private:
    friend class FabricLink;
    FabricEndpoint::Context context_;
    std::string peer_name_;
    size_t received_ = 0;
    bool any_size_ = false;
    std::condition_variable* waiter_ = nullptr;
  };

  explicit FabricLink(const FabricSettings& settings);
  ~FabricLink() override;

  [[nodiscard]] const std::string& provider() const { return endpoint_.provider(); }
  [[nodiscard]] std::string address() const override { return endpoint_.address(); }
  void connect(int peer, const std::string& name, const std::string& address) override;
  [[nodiscard]] bool is_connected(int peer) const override;
  /// See FabricEndpoint::register_memory.
  void register_memory(std::span<std::byte> region);

  /// A tag must not be in use twice between two ranks, unless the settings ask for order.
  Handle send(int peer, uint64_t tag, std::span<const std::byte> bytes,
              std::shared_ptr<void> keeps = nullptr) override;
  Handle receive(int peer, uint64_t tag, std::span<std::byte> bytes, uint64_t ignored = 0,
                 std::shared_ptr<void> keeps = nullptr) override;
  /// The same, for at most so many bytes.
  Handle receive_up_to(int peer, uint64_t tag, std::span<std::byte> bytes,
                       std::shared_ptr<void> keeps = nullptr);
  /// Bytes that a receive of this class got.
  [[nodiscard]] static size_t size_bytes(const Link::Message& message) {
    return static_cast<const Message&>(message).received_;
  }
  void cancel(const Handle& handle) override;

  static constexpr std::chrono::milliseconds kLookInterval{20};
  /// Waits until all are done. Calls `look` after each `interval` and each wake(); it may throw.
  /// Throws HostError for a message that failed, and, naming the peers, when the limit passes.
  void wait(std::span<const Handle> messages, const WaitLimit& limit,
            const std::function<void()>& look, std::chrono::milliseconds interval = kLookInterval);
  void wait_for_change(std::chrono::milliseconds longest) override;
  void wake() override;

 private:
  using MessagePtr = std::shared_ptr<Message>;
  class Waiting;

  Handle post(MessagePtr message);
  bool try_post(Message& message);
  [[nodiscard]] std::deque<MessagePtr>& backlog_of(const Message& message) {
    return message.sends_ ? sends_ : receives_;
  }
  bool drive();
  void finish(Message& message, std::string error);
  void run();

  FabricEndpoint endpoint_;
  FileDescriptor wake_file_;

  mutable std::mutex mutex_;         // guards what follows, and the endpoint
  std::condition_variable changed_;  // for wait_for_change
  // In wait(), each with its own: what one waits for wakes no other.
  std::list<std::condition_variable*> waiters_;
  uint64_t changes_ = 0;
  uint64_t seen_changes_ = 0;
  uint64_t wakes_ = 0;
  std::map<int, std::pair<uint64_t, std::string>> peers_;
  std::unordered_map<const FabricEndpoint::Context*, MessagePtr> under_way_;
  // The provider asked to try again. Two, or receives for what comes late would hold sends up.
  std::deque<MessagePtr> sends_;
  std::deque<MessagePtr> receives_;
  bool stopping_ = false;
  int process_;

  std::thread thread_;  // last: it starts with the members above in place
};

}  // namespace smp::transport
