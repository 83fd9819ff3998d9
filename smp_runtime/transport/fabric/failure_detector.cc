// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/failure_detector.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/ranges.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"

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
  const timeval limit{.tv_sec = 2, .tv_usec = 0};
  setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

sockaddr_storage address_of(const std::string& host, uint16_t port, socklen_t& size) {
  sockaddr_storage storage{};
  auto* four = reinterpret_cast<sockaddr_in*>(&storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    size = sizeof(*four);
  } else if (inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    size = sizeof(*six);
  } else {
    throw HostError("\"{}\" is no numeric address", host);
  }
  return storage;
}

bool send_all(int socket, const Header& header, std::string_view text) {
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += text;
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t now = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    sent += static_cast<size_t>(now);
  }
  return true;
}

/// Reads exactly `size` bytes, or gives up at the deadline.
bool read_all(int socket, void* to, size_t size, Clock::time_point deadline) {
  auto* bytes = static_cast<std::byte*>(to);
  while (size > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    pollfd file{.fd = socket, .events = POLLIN, .revents = 0};
    if (left <= milliseconds(0) || poll(&file, 1, static_cast<int>(left.count())) <= 0)
      return false;
    const ssize_t now = recv(socket, bytes, size, 0);
    if (now < 0 && errno == EINTR) continue;
    if (now <= 0) return false;
    bytes += now;
    size -= static_cast<size_t>(now);
  }
  return true;
}

std::string fresh_nonce() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", random(), random(), random(), random());
}

/// A connection to a peer that listens, or none when the deadline passes.
FileDescriptor dial(const std::string& host, uint16_t port, Clock::time_point deadline) {
  socklen_t size = 0;
  const sockaddr_storage to = address_of(host, port, size);
  while (Clock::now() < deadline) {
    FileDescriptor socket(::socket(to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket.is_open()) throw HostError("no socket: {}", std::strerror(errno));
    int error = 0;
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), size) != 0) error = errno;
    if (error == EINPROGRESS) {
      const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
      pollfd file{.fd = socket.get(), .events = POLLOUT, .revents = 0};
      poll(&file, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 1, 5000)));
      socklen_t length = sizeof(error);
      getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error == 0 && (file.revents & POLLOUT) == 0) error = ETIMEDOUT;
    }
    if (error == 0) {
      fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) & ~O_NONBLOCK);
      return socket;
    }
    std::this_thread::sleep_for(milliseconds(50));  // unreachable right now; the deadline decides
  }
  return {};
}

}  // namespace

struct FailureDetector::Connection {
  Peer peer;
  FileDescriptor socket;
  std::string received;
  bool leaves = false;  // it has sent FIN
  uint64_t left_after = 0;
  bool answered = false;  // by us
  bool answer = false;    // from it
  bool gone = false;      // the connection has ended
  std::string failure;    // and it was to go on
};

FailureDetector::FailureDetector(const std::string& interface_address, int rank,
                                 std::function<void(const std::string&)> on_failure)
    : rank_(rank),
      on_failure_(std::move(on_failure)),
      host_(interface_address),
      nonce_(fresh_nonce()),
      wake_file_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      process_(getpid()) {
  socklen_t size = 0;
  sockaddr_storage here = address_of(host_, 0, size);
  listener_ = FileDescriptor(::socket(here.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  auto* address = reinterpret_cast<sockaddr*>(&here);
  if (bind(listener_.get(), address, size) != 0 || listen(listener_.get(), 1024) != 0 ||
      getsockname(listener_.get(), address, &size) != 0) {
    throw HostError("cannot listen at {}: {}", host_, std::strerror(errno));
  }
  port_ = ntohs(here.ss_family == AF_INET ? reinterpret_cast<sockaddr_in*>(&here)->sin_port
                                          : reinterpret_cast<sockaddr_in6*>(&here)->sin6_port);
}

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
  return fmt::format("{} {} {}", host_, port_, nonce_);
}

void FailureDetector::connect(const std::vector<Peer>& peers, const WaitLimit& limit) {
  size_t expected = 0;
  for (const Peer& peer : peers) {
    auto connection = std::make_unique<Connection>();
    connection->peer = peer;
    if (peer.rank > rank_) {
      ++expected;
    } else {
      std::istringstream words(peer.address);
      std::string host;
      std::string nonce;
      uint16_t port = 0;
      words >> host >> port >> nonce;
      connection->socket = dial(host, port, limit.deadline);
      const Header hello{.kind = kHello,
                         .size_bytes = static_cast<uint32_t>(nonce.size()),
                         .count = static_cast<uint64_t>(rank_)};
      if (!connection->socket.is_open() || !send_all(connection->socket.get(), hello, nonce)) {
        throw HostError(
            "{}: waited {} ms to reach {} at {} port {}; may the hosts talk to each "
            "other on all ports?",
            limit.operation, limit.timeout.count(), peer.name, host, port);
      }
    }
    peers_.push_back(std::move(connection));
  }
  while (expected > 0) {
    const auto left = std::chrono::duration_cast<milliseconds>(limit.deadline - Clock::now());
    pollfd file{.fd = listener_.get(), .events = POLLIN, .revents = 0};
    if (left <= milliseconds(0) || poll(&file, 1, static_cast<int>(left.count())) <= 0) {
      std::vector<std::string> missing;
      for (const auto& peer : peers_) {
        if (!peer->socket.is_open()) missing.push_back(peer->peer.name);
      }
      throw HostError(
          "{}: waited {} ms at {} port {} for {}; may the hosts talk to each other on "
          "all ports?",
          limit.operation, limit.timeout.count(), host_, port_, fmt::join(missing, ", "));
    }
    FileDescriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Header hello{};
    std::string nonce(nonce_.size(), '\0');
    // A stranger may come by; it says nothing that counts and is dropped.
    const auto soon = std::min(limit.deadline, Clock::now() + std::chrono::seconds(10));
    if (!socket.is_open() || !read_all(socket.get(), &hello, sizeof(hello), soon) ||
        hello.kind != kHello || hello.size_bytes != nonce.size() ||
        !read_all(socket.get(), nonce.data(), nonce.size(), soon) || nonce != nonce_) {
      continue;
    }
    for (const auto& peer : peers_) {
      if (static_cast<uint64_t>(peer->peer.rank) != hello.count || peer->socket.is_open()) continue;
      peer->socket = std::move(socket);
      --expected;
      break;
    }
  }
  listener_.close();
  for (const auto& peer : peers_) set_options(peer->socket.get());
  thread_ = std::thread([this] { run(); });
  pthread_setname_np(thread_.native_handle(), "smp-failure");
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
  const std::lock_guard lock(mutex_);
  const std::string_view text = reason.substr(0, kLongestText);
  const Header header{
      .kind = kFailure, .size_bytes = static_cast<uint32_t>(text.size()), .count = 0};
  for (const auto& peer : peers_) {
    if (peer->gone || !peer->socket.is_open()) continue;
    send_all(peer->socket.get(), header, text);
    peer->answer = true;  // nobody waits for the others of a broken group
  }
}

void FailureDetector::leave(const WaitLimit& limit) {
  std::unique_lock lock(mutex_);
  const Header header{.kind = kFin, .size_bytes = 0, .count = completed_};
  for (const auto& peer : peers_) {
    if (!peer->gone && !send_all(peer->socket.get(), header, "")) peer->gone = true;
  }
  changed_.wait_until(lock, limit.deadline, [this] {
    return std::ranges::all_of(peers_, [](const auto& one) { return one->gone || one->answer; });
  });
}

/// Called with the lock.
void FailureDetector::answer_leavers() {
  bool awaited = false;
  for (const auto& peer : peers_) {
    if (!peer->leaves || peer->answered || peer->gone) continue;
    if (completed_ < peer->left_after) {
      awaited = true;
      continue;
    }
    send_all(peer->socket.get(), {.kind = kFinAck, .size_bytes = 0, .count = 0}, "");
    peer->answered = true;
  }
  awaited_.store(awaited);
}

void FailureDetector::handle(Connection& peer, uint32_t kind, uint64_t count,
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
  const std::lock_guard lock(mutex_);
  if (kind == kFin) {
    peer.leaves = true;
    peer.left_after = count;
  } else if (kind == kFinAck) {
    peer.answer = true;
    changed_.notify_all();
  }
}

void FailureDetector::read_from(Connection& peer) {
  std::array<char, 4096> bytes{};
  const ssize_t count = recv(peer.socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
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
        const int socket = peer->gone ? -1 : peer->socket.get();
        files.push_back({.fd = socket, .events = POLLIN, .revents = 0});
      }
    }
    poll(files.data(), files.size(), -1);  // until a peer speaks or ends, or this object ends
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(wake_file_.get(), &count, sizeof(count));
    for (size_t i = 0; i < peers_.size(); ++i) {
      if (files[i + 1].revents != 0) read_from(*peers_[i]);
    }
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    answer_leavers();
  }
}

}  // namespace smp::transport
