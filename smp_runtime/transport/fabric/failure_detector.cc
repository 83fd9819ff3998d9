// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/failure_detector.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <sstream>
#include <utility>

#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "smp_runtime/core/callers.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/named_thread.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

enum Kind : uint32_t { kHello = 1, kFailure = 2, kFin = 3, kFinAck = 4 };

/// Before each text. Hosts of one job have one byte order.
struct Header {
  uint32_t kind;
  uint32_t size_bytes;
  uint64_t count;
};

constexpr size_t kLongestText = 4096;
constexpr size_t kLongestHelloText = 64;
constexpr milliseconds kLongestWrite{2000};  // to a peer that does not read
constexpr milliseconds kLongestDial{5000};   // of one try
constexpr milliseconds kDialPause{50};       // between two, and between two looks
constexpr milliseconds kLongestHello{10'000};

/// A host that is gone without a word is noticed after about 30 s.
void set_options(int socket) {
  const auto set = [socket](int level, int option, int value) {
    setsockopt(socket, level, option, &value, sizeof(value));
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

void write_message(tcp::Connection& peer, const Header& header, std::string_view text) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += text;
  peer.write(bytes, Clock::now() + kLongestWrite);
}

/// Proves to the peer with this nonce that `rank` is of the job, or just has read its store.
std::string hello_text(const std::optional<MacKey>& key, const std::string& nonce, int rank) {
  if (!key) return nonce;
  return mac_text(key->of({field(nonce), field(std::to_string(rank))}));
}

/// A connection to a peer that listens, on which it was told `rank`. Throws HostError at the
/// deadline, and what `look` throws.
tcp::Connection dial(const FailureDetector::Peer& peer, int rank, const std::optional<MacKey>& key,
                     const WaitLimit& limit, const std::function<void()>& look) {
  std::istringstream words(peer.address);
  std::string host;
  std::string nonce;
  int port = 0;
  words >> host >> port >> nonce;
  const std::string text = hello_text(key, nonce, rank);
  const Header hello{.kind = kHello,
                     .size_bytes = static_cast<uint32_t>(text.size()),
                     .count = static_cast<uint64_t>(rank)};
  const std::vector<tcp::Address> addresses = tcp::resolve(host, port);
  while (true) {
    try {
      if (addresses.empty()) throw HostError("\"{}\" is no address", host);
      auto connection = tcp::Connection::open(
          addresses, std::min(kLongestDial, milliseconds(poll_timeout(limit.deadline))));
      write_message(connection, hello, text);
      return connection;
    } catch (const HostError& error) {  // unreachable right now; the deadline decides
      if (addresses.empty() || Clock::now() + kDialPause >= limit.deadline) {
        throw HostError(
            "{}: waited {} ms to reach {} at {} port {} ({}); may the hosts talk to each "
            "other on all ports?",
            limit.operation, limit.timeout.count(), peer.name, host, port, error.what());
      }
    }
    if (look) look();
    std::this_thread::sleep_for(kDialPause);
  }
}

Header header_of(std::string_view heard) {
  Header header{};
  std::memcpy(&header, heard.data(), sizeof(header));
  return header;
}

bool is_whole(std::string_view heard) {
  return heard.size() >= sizeof(Header) &&
         heard.size() - sizeof(Header) >= header_of(heard).size_bytes;
}

}  // namespace

struct FailureDetector::PeerState {
  /// Blocks for up to kLongestWrite where the peer does not read, so call it without the lock of
  /// the states. False: the peer is gone, or reads nothing.
  bool tell(const Header& header, std::string_view text) {
    const std::lock_guard lock(writing);
    if (!connection) return false;
    try {
      write_message(*connection, header, text);
      return true;
    } catch (const HostError&) {
      return false;
    }
  }

  Peer peer;
  std::mutex writing;  // one message at a time
  std::optional<tcp::Connection> connection;
  std::optional<ParentOnlyFile> parent_only;  // its socket
  std::string received;
  bool leaves = false;  // it has sent FIN
  uint64_t left_after = 0;
  bool answered = false;  // by us
  bool answer = false;    // from it
  bool gone = false;      // the connection has ended
  std::string failure;    // and it was to go on
};

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
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_file_.get(), &one, sizeof(one));
  if (thread_.joinable()) thread_.join();
}

std::string FailureDetector::address() const {
  return fmt::format("{} {} {}", host_, listener_.port(), nonce_);
}

void FailureDetector::connect(const std::vector<Peer>& peers, const WaitLimit& limit,
                              const std::function<void()>& look) {
  size_t expected = 0;
  for (const Peer& peer : peers) {
    auto state = std::make_unique<PeerState>();
    state->peer = peer;
    if (peer.rank > rank_) {
      ++expected;
    } else {
      state->connection = dial(peer, rank_, key_, limit, look);
    }
    peers_.push_back(std::move(state));
  }
  tcp::Callers callers(listener_, {.limit = kLongestHello,
                                   .longest = sizeof(Header) + kLongestHelloText,
                                   .is_whole = is_whole,
                                   .expected = expected});
  while (expected > 0) {
    auto caller = callers.next(std::min(limit.deadline, Clock::now() + kDialPause));
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
    const Header hello = header_of(caller->heard);
    const std::string text = caller->heard.substr(sizeof(hello));
    for (const auto& peer : peers_) {
      const int rank = peer->peer.rank;
      if (peer->connection || static_cast<uint64_t>(rank) != hello.count) continue;
      if (hello.kind != kHello || text != hello_text(key_, nonce_, rank)) continue;
      peer->connection = std::move(caller->connection);
      --expected;
      break;
    }
  }
  listener_.close();
  for (const auto& peer : peers_) {
    set_options(peer->connection->fd());
    peer->parent_only.emplace(peer->connection->fd());
  }
  thread_ = named_thread("smp-failure", [this] { run(); });
}

void FailureDetector::completed(uint64_t collectives) {
  {
    const std::lock_guard lock(mutex_);
    completed_ = collectives;
    if (!awaited_.load()) return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_file_.get(), &one, sizeof(one));
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
  for (const auto& peer : peers_) {
    if (peer->peer.rank == rank) return peer->failure;
  }
  return {};
}

void FailureDetector::tell(std::string_view reason) {
  const std::string_view text = reason.substr(0, kLongestText);
  const Header header{
      .kind = kFailure, .size_bytes = static_cast<uint32_t>(text.size()), .count = 0};
  std::vector<PeerState*> told;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& peer : peers_) {
      if (peer->gone) continue;
      peer->answer = true;  // nobody waits for the others of a broken group
      told.push_back(peer.get());
    }
  }
  for (PeerState* const peer : told) peer->tell(header, text);
}

void FailureDetector::leave(const WaitLimit& limit) {
  Header header{.kind = kFin, .size_bytes = 0, .count = 0};
  std::vector<PeerState*> told;
  {
    const std::lock_guard lock(mutex_);
    header.count = completed_;
    for (const auto& peer : peers_) {
      if (!peer->gone) told.push_back(peer.get());
    }
  }
  std::vector<PeerState*> lost;
  for (PeerState* const peer : told) {
    if (!peer->tell(header, "")) lost.push_back(peer);
  }
  std::unique_lock lock(mutex_);
  for (PeerState* const peer : lost) peer->gone = true;
  changed_.wait_until(lock, limit.deadline, [this] {
    return std::ranges::all_of(peers_, [](const auto& one) { return one->gone || one->answer; });
  });
}

void FailureDetector::answer_leavers() {
  std::vector<PeerState*> due;
  {
    const std::lock_guard lock(mutex_);
    bool awaited = false;
    for (const auto& peer : peers_) {
      if (!peer->leaves || peer->answered || peer->gone) continue;
      peer->answered = completed_ >= peer->left_after;
      if (peer->answered) {
        due.push_back(peer.get());
      } else {
        awaited = true;
      }
    }
    awaited_.store(awaited);
  }
  for (PeerState* const peer : due) {
    peer->tell({.kind = kFinAck, .size_bytes = 0, .count = 0}, "");
  }
}

void FailureDetector::handle(PeerState& peer, uint32_t kind, uint64_t count,
                             const std::string& text) {
  if (kind == kFailure) {
    {
      const std::lock_guard lock(mutex_);
      peer.answer = true;  // its end is no news
      changed_.notify_all();
    }
    on_failure_(text);
    return;
  }
  if (kind == kFin) {
    {
      const std::lock_guard lock(mutex_);
      peer.leaves = true;
      peer.left_after = count;
    }
    on_leave_(peer.peer.rank);
    return;
  }
  const std::lock_guard lock(mutex_);
  if (kind == kFinAck) {
    peer.answer = true;
    changed_.notify_all();
  }
}

void FailureDetector::read_from(PeerState& peer) {
  std::array<char, 4096> bytes{};
  const ssize_t count = recv(peer.connection->fd(), bytes.data(), bytes.size(), 0);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) {
    const std::string problem = fmt::format(
        "its connection ended ({}); see the output of its process, which has ended, or whether its "
        "host is up",
        count < 0 ? std::strerror(errno) : "closed");
    bool expected = false;
    {
      const std::lock_guard lock(mutex_);
      peer.gone = true;
      expected = peer.leaves || peer.answer || stopping_;
      if (!expected) peer.failure = problem;
      changed_.notify_all();
    }
    if (!expected) on_failure_(fmt::format("{} is gone: {}", peer.peer.name, problem));
    return;
  }
  peer.received.append(bytes.data(), static_cast<size_t>(count));
  Header header{};
  while (peer.received.size() >= sizeof(header)) {
    std::memcpy(&header, peer.received.data(), sizeof(header));
    const size_t whole = sizeof(header) + std::min<size_t>(header.size_bytes, kLongestText);
    if (peer.received.size() < whole) return;
    handle(peer, header.kind, header.count,
           peer.received.substr(sizeof(header), whole - sizeof(header)));
    peer.received.erase(0, whole);
  }
}

void FailureDetector::run() {
  while (true) {
    std::vector<pollfd> files{{.fd = wake_file_.get(), .events = POLLIN, .revents = 0}};
    {
      const std::lock_guard lock(mutex_);
      for (const auto& peer : peers_) {
        const int socket = peer->gone ? -1 : peer->connection->fd();
        files.push_back({.fd = socket, .events = POLLIN, .revents = 0});
      }
    }
    poll(files.data(), files.size(), -1);  // until a peer speaks or ends, or this object ends
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_file_.get(), &count, sizeof(count));
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (files[i + 1].revents != 0) read_from(*peers_[i]);
    }
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    answer_leavers();
  }
}

}  // namespace smp::transport
