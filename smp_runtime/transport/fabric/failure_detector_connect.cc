// SPDX-License-Identifier: Apache-2.0
// How failure detectors find each other.
#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/ranges.h>
#include <poll.h>

#include "smp_runtime/core/callers.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/transport/fabric/detector_peer.h"
#include "smp_runtime/transport/fabric/failure_detector.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookPause{50};
/// Time that a rank waits for the reason why the hub has ended the connection.
constexpr milliseconds kReasonGrace{2000};
constexpr milliseconds kLongestHelloTime{10'000};

}  // namespace

void FailureDetector::connect(const std::vector<Peer>& peers, const WaitLimit& limit,
                              const std::function<void()>& look) {
  size_t expected = 0;
  for (const Peer& peer : peers) {
    auto state = std::make_unique<PeerState>();
    state->peer = peer;
    if (peer.rank > rank_) {
      ++expected;
    } else {
      const auto to = DetectorAddress::parse(peer.address);
      state->connection.emplace(dial(to, peer.name, hello_of(key_, to.nonce, rank_), limit, look));
    }
    peers_.push_back(std::move(state));
  }
  take_callers(expected, limit, look);
  thread_ = named_thread("smp-failure", [this] { run(); });
}

void FailureDetector::connect_by_hub(const std::vector<Peer>& peers, const WaitLimit& limit,
                                     const std::function<void()>& look) {
  const int hub = std::ranges::min(peers, {}, &Peer::rank).rank;
  is_hub_ = rank_ < hub;
  for (const Peer& peer : peers) {
    peers_.push_back(std::make_unique<PeerState>());
    peers_.back()->peer = peer;
  }
  if (is_hub_) {
    take_callers(peers.size(), limit, look);
    hand_on({.kind = Kind::kReady, .text = {}}, nullptr);
  } else {
    PeerState& state = *find(hub);
    const auto to = DetectorAddress::parse(state.peer.address);
    state.connection.emplace(
        dial(to, state.peer.name, hello_of(key_, to.nonce, rank_), limit, look));
    await_hub(state, limit, look);
    listener_.close();
  }
  thread_ = named_thread("smp-failure", [this] { run(); });
}

/// Those with higher numbers.
void FailureDetector::take_callers(size_t expected, const WaitLimit& limit,
                                   const std::function<void()>& look) {
  const auto is_whole = [](std::string_view heard) {
    std::string bytes(heard);
    return DetectorMessage::take(bytes).has_value();
  };
  tcp::Callers callers(listener_, {.limit = kLongestHelloTime,
                                   .longest = kLongestHello,
                                   .is_whole = is_whole,
                                   .expected = expected});
  while (expected > 0) {
    auto caller = callers.next(std::min(limit.deadline, Clock::now() + kLookPause));
    if (!caller && Clock::now() < limit.deadline) {
      if (look) look();
      continue;
    }
    if (!caller) {
      std::vector<std::string> missing;
      for (const auto& peer : peers_) {
        if (!peer->connection) missing.push_back(peer->peer.name);
      }
      throw HostError(
          "{}: waited {} ms at {} port {} for {}; may the hosts talk to each other on all ports?",
          limit.operation, limit.timeout.count(), host_, listener_.port(),
          fmt::join(missing, ", "));
    }
    // A stranger may come by; it says nothing that counts.
    const auto hello = DetectorMessage::take(caller->heard);
    for (const auto& peer : peers_) {
      const int rank = peer->peer.rank;
      if (peer->connection || static_cast<uint64_t>(rank) != hello->count) continue;
      const DetectorMessage expects = hello_of(key_, nonce_, rank);
      if (hello->kind != expects.kind || hello->text != expects.text) continue;
      peer->connection.emplace(std::move(caller->connection));
      --expected;
      break;
    }
  }
  listener_.close();
}

/// Blocks until the hub has all others.
void FailureDetector::await_hub(PeerState& hub, const WaitLimit& limit,
                                const std::function<void()>& look) {
  std::vector<DetectorMessage> messages;
  while (messages.empty()) {
    pollfd file{.fd = hub.connection->fd(), .events = POLLIN, .revents = 0};
    poll(&file, 1, poll_timeout(std::min(limit.deadline, Clock::now() + kLookPause)));
    if (file.revents == 0) {
      if (look) look();
      if (Clock::now() < limit.deadline) continue;
      throw HostError(
          "{}: waited {} ms for {}, which connects the ranks of the group and waits for others; "
          "see its output",
          limit.operation, limit.timeout.count(), hub.peer.name);
    }
    if (const auto problem = hub.connection->receive(messages)) {
      // It has failed, and tells why after that.
      const Deadline until = std::min(limit.deadline, Clock::now() + kReasonGrace);
      for (; look && Clock::now() < until; std::this_thread::sleep_for(kLookPause)) look();
      throw HostError("{}: {} has ended the connection ({}); see its output", limit.operation,
                      hub.peer.name, *problem);
    }
  }
  for (const DetectorMessage& message : messages) handle(hub, message);
}

}  // namespace smp::transport
