// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/failure_detector.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/transport/fabric/detector_peer.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestDrain{2000};  // to peers that do not read, at the end
/// A hub tells of those that leave at once and then no more often than this.
constexpr milliseconds kFinInterval{20};
constexpr size_t kMostInFin = 500;  // ranks
/// A thousand ranks that fail since another one has would tell each other a million times.
constexpr int kMostFailures = 8;

std::string gone_text(const FailureDetector::Peer& peer, const std::string& problem) {
  return fmt::format("{} is gone: {}", peer.name, problem);
}

}  // namespace

FailureDetector::FailureDetector(const std::string& interface_address, int rank,
                                 const JobSecret* secret,
                                 std::function<void(const std::string&)> on_failure,
                                 std::function<void(int)> on_leave)
    : rank_(rank),
      on_failure_(std::move(on_failure)),
      on_leave_(std::move(on_leave)),
      host_(interface_address),
      nonce_(fresh_nonce()),
      key_(secret == nullptr ? std::nullopt
                             : std::optional<MacKey>(std::in_place, *secret, "failure detector")),
      listener_({interface_address}, 0),
      wake_file_(make_wake_file()),
      process_(getpid()) {}

FailureDetector::~FailureDetector() {
  if (getpid() != process_) {
    if (thread_.joinable()) thread_.detach();  // a forked child has no such thread
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  if (thread_.joinable()) thread_.join();
}

void FailureDetector::wake() const {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_file_.get(), &one, sizeof(one));
}

std::string FailureDetector::address() const {
  return DetectorAddress{.host = host_, .port = listener_.port(), .nonce = nonce_}.text();
}

FailureDetector::PeerState* FailureDetector::find(int rank) const {
  const auto found =
      std::ranges::find_if(peers_, [rank](const auto& peer) { return peer->peer.rank == rank; });
  return found == peers_.end() ? nullptr : found->get();
}

std::vector<FailureDetector::PeerState*> FailureDetector::connected(const PeerState* but) const {
  std::vector<PeerState*> found;
  for (const auto& peer : peers_) {
    if (peer->connection && !peer->gone && peer.get() != but) found.push_back(peer.get());
  }
  return found;
}

void FailureDetector::completed(uint64_t collectives) {
  {
    const std::lock_guard lock(mutex_);
    completed_ = collectives;
    if (!awaited_.load()) return;
  }
  wake();
}

void FailureDetector::throw_if_left(uint64_t sequence, const std::string& operation) const {
  const std::lock_guard lock(mutex_);
  for (const auto& peer : peers_) {
    if (peer->leaves && peer->left_after <= sequence) {
      throw HostError(
          "{}: {} has left the group; do all ranks make the same calls before they end?", operation,
          peer->peer.name);
    }
  }
}

std::string FailureDetector::failure_of(int rank) const {
  const std::lock_guard lock(mutex_);
  const PeerState* const peer = find(rank);
  return peer == nullptr ? std::string() : peer->failure;
}

void FailureDetector::tell(std::string_view reason) {
  std::vector<PeerState*> told;
  {
    const std::lock_guard lock(mutex_);
    told = connected();
    for (PeerState* const peer : told) peer->broken = true;
    changed_.notify_all();  // nobody waits for the others of a broken group
  }
  const DetectorMessage message{.kind = Kind::kFailure, .text = std::string(reason)};
  for (PeerState* const peer : told) peer->connection->send(message);
  wake();
}

void FailureDetector::leave(const WaitLimit& limit) {
  DetectorMessage fin{.kind = Kind::kFin, .text = std::to_string(rank_)};
  std::vector<PeerState*> told;
  {
    const std::lock_guard lock(mutex_);
    fin.count = completed_;
    told = connected();
  }
  std::vector<PeerState*> lost;
  for (PeerState* const peer : told) {
    if (!peer->connection->send(fin)) lost.push_back(peer);
  }
  wake();
  std::unique_lock lock(mutex_);
  for (PeerState* const peer : lost) peer->gone = true;
  changed_.wait_until(lock, limit.deadline, [&] { return have_done(fin.count, nullptr); });
}

/// True if all with whom there is a connection have done so many, as far as they still do any.
bool FailureDetector::have_done(uint64_t collectives, const PeerState* but) const {
  return std::ranges::all_of(connected(but), [=](const PeerState* peer) {
    return peer->broken || peer->done >= collectives;
  });
}

/// Tells those who wait for it that this rank, and all for whom it is the hub, have done what a
/// leaver has done.
void FailureDetector::answer_leavers() {
  std::vector<std::pair<PeerState*, uint64_t>> due;
  {
    const std::lock_guard lock(mutex_);
    bool awaited = false;
    for (PeerState* const peer : connected()) {
      const uint64_t wanted = std::max(wanted_, peer->leaves ? peer->left_after : 0);
      if (wanted <= peer->answered) continue;
      if (completed_ < wanted || (is_hub_ && !have_done(wanted, peer))) {
        awaited = true;
        continue;
      }
      peer->answered = wanted;
      due.emplace_back(peer, wanted);
    }
    awaited_.store(awaited);
  }
  for (const auto& [peer, collectives] : due) {
    peer->connection->send({.kind = Kind::kFinAck, .count = collectives, .text = {}});
  }
}

/// To all who have nobody else to tell them.
void FailureDetector::hand_on(const DetectorMessage& message, const PeerState* from) {
  if (!is_hub_) return;
  std::vector<PeerState*> told;
  {
    const std::lock_guard lock(mutex_);
    told = connected(from);
  }
  for (PeerState* const peer : told) peer->connection->send(message);
}

void FailureDetector::hand_on_fins() {
  std::map<uint64_t, std::vector<std::vector<int>>> leavers;  // by their collectives
  {
    const std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) {
      if (!peer->leaves || std::exchange(peer->handed_on, true)) continue;
      auto& lists = leavers[peer->left_after];
      if (lists.empty() || lists.back().size() == kMostInFin) lists.emplace_back();
      lists.back().push_back(peer->peer.rank);
    }
  }
  for (const auto& [collectives, lists] : leavers) {
    for (const std::vector<int>& ranks : lists) {
      hand_on({.kind = Kind::kFin,
               .count = collectives,
               .text = fmt::format("{}", fmt::join(ranks, " "))},
              nullptr);
    }
  }
  fins_due_ = kNever;
  last_fins_ = Clock::now();
}

void FailureDetector::note_fin(PeerState& from, const DetectorMessage& message) {
  std::vector<int> left;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& word : split(message.text, ' ')) {
      PeerState* const peer = find(parse_number<int>(word).value_or(-1));
      // A hub speaks for those with whom there is no connection.
      if (peer == nullptr || (peer != &from && peer->connection)) continue;
      if (peer != &from) wanted_ = std::max(wanted_, message.count);
      peer->handed_on = peer->handed_on && peer->left_after == message.count;
      peer->leaves = true;
      peer->left_after = message.count;
      peer->done = std::max(peer->done, message.count);
      left.push_back(peer->peer.rank);
    }
  }
  for (const int rank : left) on_leave_(rank);
  if (is_hub_ && fins_due_ == kNever) fins_due_ = std::max(Clock::now(), last_fins_ + kFinInterval);
}

void FailureDetector::handle(PeerState& from, const DetectorMessage& message) {
  if (message.kind == Kind::kFin) return note_fin(from, message);
  std::string reason;
  {
    const std::lock_guard lock(mutex_);
    if (message.kind == Kind::kFinAck) {
      from.done = std::max(from.done, message.count);
    } else if (message.kind == Kind::kFailure) {
      from.broken = true;
      reason = message.text;
    } else if (message.kind == Kind::kGone) {
      from.broken = true;
      PeerState* const peer = find(static_cast<int>(message.count));
      if (peer != nullptr && !peer->connection) {
        peer->failure = message.text;
        reason = gone_text(peer->peer, message.text);
      }
    }
    changed_.notify_all();
  }
  if (reason.empty()) return;
  if (handed_on_++ < kMostFailures) hand_on(message, &from);
  on_failure_(reason);
}

void FailureDetector::note_end(PeerState& peer, const std::string& how) {
  const std::string problem = fmt::format(
      "its connection ended ({}); see the output of its process, which has ended, or whether its "
      "host is up",
      how);
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(peer.gone, true)) return;
    changed_.notify_all();
    if (peer.leaves || peer.broken || stopping_) return;
    peer.failure = problem;
  }
  hand_on({.kind = Kind::kGone, .count = static_cast<uint64_t>(peer.peer.rank), .text = problem},
          &peer);
  on_failure_(gone_text(peer.peer, problem));
}

void FailureDetector::read_from(PeerState& peer) {
  std::vector<DetectorMessage> messages;
  const auto end = peer.connection->receive(messages);
  for (const DetectorMessage& message : messages) handle(peer, message);
  if (end) note_end(peer, *end);
}

/// The peers that can be written to or read from, within the time.
std::vector<FailureDetector::PeerState*> FailureDetector::await_some(Deadline until,
                                                                     bool only_writes) {
  std::vector<PeerState*> open;
  {
    const std::lock_guard lock(mutex_);
    open = connected();
  }
  std::vector<pollfd> files;
  for (const PeerState* const peer : open) {
    const bool writes = peer->connection->has_backlog();
    const int events = (only_writes ? 0 : POLLIN) | (writes ? POLLOUT : 0);
    files.push_back({.fd = events == 0 ? -1 : peer->connection->fd(),
                     .events = static_cast<short>(events),
                     .revents = 0});
  }
  files.push_back({.fd = only_writes ? -1 : wake_file_.get(), .events = POLLIN, .revents = 0});
  poll(files.data(), files.size(), poll_timeout(until));
  std::vector<PeerState*> readable;
  for (size_t i = 0; i < open.size(); ++i) {
    if ((files[i].revents & POLLOUT) != 0) open[i]->connection->flush();
    if ((files[i].revents & ~POLLOUT) != 0) readable.push_back(open[i]);
  }
  return readable;
}

void FailureDetector::run() {
  while (true) {
    // Until a peer speaks or ends, or this object ends.
    const std::vector<PeerState*> spoken = await_some(fins_due_, false);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_file_.get(), &count, sizeof(count));
    for (PeerState* const peer : spoken) read_from(*peer);
    bool stops = false;
    {
      const std::lock_guard lock(mutex_);
      stops = stopping_;
    }
    if (stops || Clock::now() >= fins_due_) hand_on_fins();
    answer_leavers();
    if (stops) break;
  }
  const auto writes = [this] {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(
        connected(), [](const PeerState* peer) { return peer->connection->has_backlog(); });
  };
  const Deadline end = Clock::now() + kLongestDrain;
  while (writes() && Clock::now() < end) static_cast<void>(await_some(end, true));
}

}  // namespace smp::transport
