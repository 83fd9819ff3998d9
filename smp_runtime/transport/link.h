// SPDX-License-Identifier: Apache-2.0
// Messages of bytes between any two ranks of a group, told apart by tags: posted at once, complete
// later, matched by the receiver in the order of their sends. Collectives between hosts send by
// them; ranks of one host read each other's SharedSegment. Ranks of a pipeline, which take messages
// as they come, have a ByteChannel to each other.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::transport {

/// For one thread, but for wake(), which is for any. What is under way moves while that thread
/// waits for a change at the latest.
class Link {
 public:
  /// One message on its way.
  class Message {
   public:
    /// For links. See send() and receive().
    Message(int peer, uint64_t tag, std::span<const std::byte> bytes, std::shared_ptr<void> keeps)
        : peer_(peer), sends_(true), out_(bytes), tag_(tag), keeps_(std::move(keeps)) {}
    Message(int peer, uint64_t tag, uint64_t ignored, std::span<std::byte> bytes,
            std::shared_ptr<void> keeps)
        : peer_(peer),
          sends_(false),
          ignored_(ignored),
          in_(bytes),
          tag_(tag),
          keeps_(std::move(keeps)) {}
    Message(const Message&) = delete;
    Message& operator=(const Message&) = delete;
    virtual ~Message() = default;
    [[nodiscard]] bool done() const { return done_.load(std::memory_order_acquire); }
    /// Once done: the tag it came with. Throws HostError, naming the peer, if it failed or was not
    /// of the size expected.
    [[nodiscard]] uint64_t result() const {
      SMP_CHECK(done(), "a message that is under way");
      if (!error_.empty()) throw HostError(error_);
      return tag_;
    }

   protected:
    void finish(std::string error) {
      error_ = std::move(error);
      keeps_.reset();
      done_.store(true, std::memory_order_release);
    }

    const int peer_;
    const bool sends_;
    const uint64_t ignored_ = 0;
    const std::span<const std::byte> out_;  // of a send
    const std::span<std::byte> in_;         // of a receive
    uint64_t tag_;

   private:
    std::shared_ptr<void> keeps_;
    std::string error_;
    std::atomic<bool> done_{false};
  };
  using Handle = std::shared_ptr<Message>;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  /// Drops messages that are under way.
  virtual ~Link() = default;

  /// Address for connect() in the other ranks, while this link is there.
  [[nodiscard]] virtual std::string address() const = 0;
  /// `peer` is the caller's number for it, `name` the one for messages.
  virtual void connect(int peer, const std::string& name, const std::string& address) = 0;
  [[nodiscard]] virtual bool is_connected(int peer) const = 0;

  /// `bytes` must stay until the message is done, or the link is gone; `keeps` owns them, since a
  /// send may go on after cancel(). The peer is connected.
  virtual Handle send(int peer, uint64_t tag, std::span<const std::byte> bytes,
                      std::shared_ptr<void> keeps = nullptr) = 0;
  /// From `peer`, or from any (-1). Bits of the tag that `ignored` has may differ.
  virtual Handle receive(int peer, uint64_t tag, std::span<std::byte> bytes, uint64_t ignored = 0,
                         std::shared_ptr<void> keeps = nullptr) = 0;
  /// Gives up a message that may be under way.
  virtual void cancel(const Handle& message) = 0;

  /// Waits until a message is done since the last call, or for wake(), at most that long.
  virtual void wait_for_change(std::chrono::milliseconds longest) = 0;
  virtual void wake() = 0;
};

}  // namespace smp::transport
