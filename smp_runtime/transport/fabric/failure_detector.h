// SPDX-License-Identifier: Apache-2.0
// Failure detector of ranks on several hosts: TCP connections of its own, which carry nothing else
// and whose end is noticed at once, whatever network moves the data, and whatever processes the
// rank has forked: children give up their copies of them.
//
// Few ranks have a connection with each other. Many have one with a hub alone, which notices the
// end of each and hands on what it hears, so that a group of n ranks has n - 1 connections. Once
// the hub has left, the others learn nothing of each other any more.
//
// A rank leaves with FIN and waits for an acknowledgement: a peer gives it once it, and all for
// whom it is the hub, have done all collectives that the leaver has done, so that nobody goes while
// what it sent is still on its way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/tcp.h"
#include "smp_runtime/transport/fabric/detector_connection.h"
#include "smp_runtime/transport/wait_limit.h"

namespace smp::transport {

/// Safe to call from several threads, but connect(), which comes first. No lock is held while
/// somebody else's computer is waited for, and only connect() and leave() wait for one.
class FailureDetector {
 public:
  struct Peer {
    int rank;             ///< numbers order the peers: the higher one connects
    std::string name;     ///< for messages, e.g. "rank 3 (host algo-2)"
    std::string address;  ///< what its address() gave; of those that this rank connects to
  };

  /// Listens at `interface_address` (numeric). Peers prove that they know the `secret`, may it be
  /// null. `on_failure` gets the reason, in a thread of this object, when a peer fails; it may be
  /// called several times. `on_leave` gets the rank of a peer that has sent FIN, likewise.
  FailureDetector(
      const std::string& interface_address, int rank, const JobSecret* secret,
      std::function<void(const std::string&)> on_failure,
      std::function<void(int)> on_leave = [](int) {});
  FailureDetector(const FailureDetector&) = delete;
  FailureDetector& operator=(const FailureDetector&) = delete;
  /// Ends the connections; a peer that was not told before takes it for a failure.
  ~FailureDetector();

  [[nodiscard]] std::string address() const;
  /// Connects with all of them; collective. Strangers who come, silent or not, delay nobody. Calls
  /// `look`, which may throw, from time to time. Throws HostError, naming who did not come.
  void connect(const std::vector<Peer>& peers, const WaitLimit& limit,
               const std::function<void()>& look = {});
  /// The same with one connection a rank: the lowest one of all is the hub. Each has all others as
  /// its peers.
  void connect_by_hub(const std::vector<Peer>& peers, const WaitLimit& limit,
                      const std::function<void()>& look = {});

  /// This rank has done so many collectives.
  void completed(uint64_t collectives);
  /// Throws HostError if a peer has left that did not do collective number `sequence` (from 0).
  void throw_if_left(uint64_t sequence, const std::string& operation) const;

  /// Failure of a peer that did not leave with FIN; empty while there is none, and for ranks that
  /// are no peers.
  [[nodiscard]] std::string failure_of(int rank) const;

  /// Every peer's `on_failure` gets this reason; through a hub where it is one of the first.
  void tell(std::string_view reason);
  /// Sends FIN and waits for the answers. Peers that are lost do not count.
  void leave(const WaitLimit& limit);

 private:
  struct PeerState;
  using Kind = DetectorMessage::Kind;

  void take_callers(size_t expected, const WaitLimit& limit, const std::function<void()>& look);
  void await_hub(PeerState& hub, const WaitLimit& limit, const std::function<void()>& look);
  [[nodiscard]] PeerState* find(int rank) const;
  [[nodiscard]] std::vector<PeerState*> connected(const PeerState* but = nullptr) const;
  [[nodiscard]] bool have_done(uint64_t collectives, const PeerState* but) const;

  void run();
  void read_from(PeerState& peer);
  [[nodiscard]] std::vector<PeerState*> await_some(Deadline until, bool only_writes);
  void handle(PeerState& from, const DetectorMessage& message);
  void note_fin(PeerState& from, const DetectorMessage& message);
  void note_end(PeerState& peer, const std::string& how);
  void hand_on(const DetectorMessage& message, const PeerState* from);
  void hand_on_fins();
  void answer_leavers();
  void wake() const;

  int rank_;
  std::function<void(const std::string&)> on_failure_;
  std::function<void(int)> on_leave_;
  std::string host_;
  std::string nonce_;
  std::optional<MacKey> key_;
  tcp::Listener listener_;
  FileDescriptor wake_file_;
  int process_;
  std::vector<std::unique_ptr<PeerState>> peers_;
  bool is_hub_ = false;
  Deadline fins_due_ = kNever;  // as the next of run()
  Deadline last_fins_{};
  int handed_on_ = 0;  // failures

  mutable std::mutex mutex_;  // guards what follows, and the states of the peers
  std::condition_variable changed_;
  uint64_t completed_ = 0;
  uint64_t wanted_ = 0;  // collectives after which somebody whom the hub has told of has left
  bool stopping_ = false;
  std::atomic<bool> awaited_{false};  // a peer waits for completed_

  std::thread thread_;
};

}  // namespace smp::transport
