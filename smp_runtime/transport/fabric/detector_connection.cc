// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/detector_connection.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <thread>
#include <utility>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

using std::chrono::milliseconds;

/// Before each text. Hosts of one job have one byte order.
struct Header {
  uint32_t kind;
  uint32_t size_bytes;
  uint64_t count;
};

constexpr size_t kLongestText = 4096;
constexpr size_t kLongestBacklog = 1024 * 1024;
constexpr milliseconds kLongestHelloWrite{2000};  // to a peer that does not read
constexpr milliseconds kLongestDial{5000};        // of one try
constexpr milliseconds kDialPause{50};            // between two

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

}  // namespace

std::string DetectorMessage::bytes() const {
  const std::string_view fits = std::string_view(text).substr(0, kLongestText);
  const Header header{.kind = static_cast<uint32_t>(kind),
                      .size_bytes = static_cast<uint32_t>(fits.size()),
                      .count = count};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof(header));
  bytes += fits;
  return bytes;
}

std::optional<DetectorMessage> DetectorMessage::take(std::string& bytes) {
  Header header{};
  if (bytes.size() < sizeof(header)) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const size_t whole = sizeof(header) + std::min<size_t>(header.size_bytes, kLongestText);
  if (bytes.size() < whole) return std::nullopt;
  DetectorMessage message{.kind = static_cast<Kind>(header.kind),
                          .count = header.count,
                          .text = bytes.substr(sizeof(header), whole - sizeof(header))};
  bytes.erase(0, whole);
  return message;
}

DetectorAddress DetectorAddress::parse(const std::string& text) {
  DetectorAddress address;
  std::istringstream words(text);
  words >> address.host >> address.port >> address.nonce;
  return address;
}

std::string DetectorAddress::text() const { return fmt::format("{} {} {}", host, port, nonce); }

DetectorMessage hello_of(const std::optional<MacKey>& key, const std::string& nonce, int rank) {
  const std::string proof =
      key ? mac_text(key->of({field(nonce), field(std::to_string(rank))})) : nonce;
  return {
      .kind = DetectorMessage::Kind::kHello, .count = static_cast<uint64_t>(rank), .text = proof};
}

tcp::Connection dial(const DetectorAddress& address, const std::string& name,
                     const DetectorMessage& hello, const WaitLimit& limit,
                     const std::function<void()>& look) {
  const std::vector<tcp::Address> addresses = tcp::resolve(address.host, address.port);
  while (true) {
    try {
      if (addresses.empty()) throw HostError("\"{}\" is no address", address.host);
      auto connection = tcp::Connection::open(
          addresses, std::min(kLongestDial, milliseconds(poll_timeout(limit.deadline))));
      connection.write(hello.bytes(), Clock::now() + kLongestHelloWrite);
      return connection;
    } catch (const HostError& error) {  // unreachable right now; the deadline decides
      if (addresses.empty() || Clock::now() + kDialPause >= limit.deadline) {
        throw HostError(
            "{}: waited {} ms to reach {} at {} port {} ({}); may the hosts talk to each "
            "other on all ports?",
            limit.operation, limit.timeout.count(), name, address.host, address.port, error.what());
      }
    }
    if (look) look();
    std::this_thread::sleep_for(kDialPause);
  }
}

DetectorConnection::DetectorConnection(tcp::Connection connection)
    : connection_(std::move(connection)), parent_only_(connection_.fd()) {
  set_options(connection_.fd());
}

bool DetectorConnection::send(const DetectorMessage& message) {
  const std::lock_guard lock(mutex_);
  if (ended_ || backlog_.size() > kLongestBacklog) return false;
  backlog_ += message.bytes();
  write_some();
  return !ended_;
}

bool DetectorConnection::has_backlog() const {
  const std::lock_guard lock(mutex_);
  return !backlog_.empty() && !ended_;
}

void DetectorConnection::flush() {
  const std::lock_guard lock(mutex_);
  write_some();
}

void DetectorConnection::write_some() {
  while (!backlog_.empty() && !ended_) {
    const ssize_t count =
        ::send(connection_.fd(), backlog_.data(), backlog_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      backlog_.erase(0, static_cast<size_t>(count));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      ended_ = true;  // which receive() finds as well
    }
  }
}

std::optional<std::string> DetectorConnection::receive(std::vector<DetectorMessage>& messages) {
  std::array<char, 4096> bytes{};
  const ssize_t count = recv(connection_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (count <= 0) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    return count < 0 ? std::strerror(errno) : "closed";
  }
  received_.append(bytes.data(), static_cast<size_t>(count));
  while (auto message = DetectorMessage::take(received_)) messages.push_back(std::move(*message));
  return std::nullopt;
}

}  // namespace smp::transport
