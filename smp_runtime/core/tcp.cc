// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/tcp.h"

#include <array>
#include <cerrno>
#include <cstring>

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>

#include "smp_runtime/core/error.h"

namespace smp::tcp {
namespace {

// Waits for `events`; false at the deadline.
bool wait_ready(int fd, short events, Deadline deadline) {
  while (true) {
    const int left = poll_timeout(deadline);
    if (left == 0) return false;
    pollfd ready{.fd = fd, .events = events, .revents = 0};
    const int count = poll(&ready, 1, left);
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) throw HostError("poll: {}", std::strerror(errno));
  }
}

// The 16 bytes of an IPv6 address; IPv4 comes in its mapped form.
std::array<unsigned char, 16> host_bytes(const Address& address) {
  std::array<unsigned char, 16> bytes{};
  if (address.family() == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &address.storage, sizeof(v4));
    bytes[10] = bytes[11] = 0xff;
    std::memcpy(bytes.data() + 12, &v4.sin_addr, 4);
  } else {
    sockaddr_in6 v6{};
    std::memcpy(&v6, &address.storage, sizeof(v6));
    std::memcpy(bytes.data(), &v6.sin6_addr, 16);
  }
  return bytes;
}

std::vector<Address> lookup(const std::string& host, int port, int family, int flags) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
  std::vector<Address> result;
  for (const addrinfo* item = found; item != nullptr; item = item->ai_next) {
    Address address;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    address.length = item->ai_addrlen;
    result.push_back(address);
  }
  freeaddrinfo(found);
  return result;
}

// Empty text: connected.
std::string connect_socket(int fd, const Address& address, std::chrono::milliseconds limit) {
  if (connect(fd, address.get(), address.length) == 0) return {};
  if (errno != EINPROGRESS) return std::strerror(errno);
  if (!wait_ready(fd, POLLOUT, Clock::now() + limit)) {
    return fmt::format("no answer within {} ms", limit.count());
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? std::string{} : std::strerror(error);
}

}  // namespace

std::string Address::text() const {
  std::array<char, NI_MAXHOST> name{};
  if (getnameinfo(get(), length, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return "an unknown address";
  }
  const std::string_view text(name.data());
  constexpr std::string_view kMapped = "::ffff:";
  return std::string(text.starts_with(kMapped) ? text.substr(kMapped.size()) : text);
}

int Address::port() const {
  sockaddr_in port_holder{};  // the port is at the same place in both families
  std::memcpy(&port_holder, &storage, sizeof(port_holder));
  return ntohs(port_holder.sin_port);
}

bool Address::same_host(const Address& other) const {
  return host_bytes(*this) == host_bytes(other);
}

std::vector<Address> resolve(const std::string& host, int port, int family) {
  return lookup(host, port, family, 0);
}

Address local_address(int socket) {
  Address address;
  address.length = sizeof(address.storage);
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage), &address.length) != 0) {
    throw HostError("getsockname: {}", std::strerror(errno));
  }
  return address;
}

Connection Connection::open(const std::vector<Address>& addresses,
                            std::chrono::milliseconds limit) {
  std::string reasons;
  for (const Address& address : addresses) {
    FileDescriptor fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const std::string reason =
        fd.is_open() ? connect_socket(fd.get(), address, limit) : system_error_text(errno);
    if (reason.empty()) return {std::move(fd), address};
    reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : ", ", address.text(), reason);
  }
  throw HostError("{}", reasons.empty() ? "no address" : reasons);
}

void Connection::read(std::span<std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (count > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    } else if (count == 0) {
      throw HostError("{} closed the connection", peer_.text());
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_ready(socket_.get(), POLLIN, deadline)) {
        throw HostError("{} accepted the connection but says nothing", peer_.text());
      }
    } else {
      throw HostError("{}: {}", peer_.text(), std::strerror(errno));
    }
  }
}

std::string Connection::read_line(std::size_t longest, Deadline deadline) {
  // Byte by byte: what follows the line may belong to another reader.
  std::string line;
  while (line.size() <= longest) {
    char byte = 0;
    read(std::as_writable_bytes(std::span(&byte, 1)), deadline);
    if (byte == '\n') {
      if (line.ends_with('\r')) line.pop_back();
      return line;
    }
    line += byte;
  }
  throw HostError("{} sent a line of more than {} bytes", peer_.text(), longest);
}

void Connection::write(std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t count = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN || errno == EINTR) {
      if (!wait_ready(socket_.get(), POLLOUT, deadline)) {
        throw HostError("{} takes no data", peer_.text());
      }
    } else {
      throw HostError("{}: {}", peer_.text(), std::strerror(errno));
    }
  }
}

Address Connection::own() const { return local_address(socket_.get()); }

Listener::Listener(const std::vector<std::string>& addresses, int port) : port_(port) {
  std::vector<Address> ends;
  for (const std::string& text : addresses) {
    const std::vector<Address> found = lookup(text, port, AF_UNSPEC, AI_NUMERICHOST);
    ends.insert(ends.end(), found.begin(), found.end());
  }
  if (addresses.empty()) ends = lookup("0.0.0.0", port, AF_INET, AI_NUMERICHOST);
  for (const Address& end : ends) {
    FileDescriptor fd(socket(end.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const int yes = 1;
    // Another server, such as sshd, may take the port over right after us.
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (!fd.is_open() || bind(fd.get(), end.get(), end.length) != 0 ||
        listen(fd.get(), SOMAXCONN) != 0) {
      throw HostError("cannot listen on {}{}: {}", end.text(),
                      port == 0 ? "" : fmt::format(" port {}", port), system_error_text(errno));
    }
    port_ = local_address(fd.get()).port();
    sockets_.push_back(std::move(fd));
  }
  if (sockets_.empty()) throw HostError("no address to listen on");
}

std::optional<Connection> Listener::accept(Deadline deadline) {
  while (true) {
    std::vector<pollfd> ready;
    for (const int fd : fds()) ready.push_back({.fd = fd, .events = POLLIN, .revents = 0});
    const int left = poll_timeout(deadline);
    if (left == 0) return std::nullopt;
    if (poll(ready.data(), ready.size(), left) < 0 && errno != EINTR) {
      throw HostError("poll: {}", std::strerror(errno));
    }
    if (auto connection = accept_now()) return connection;
  }
}

std::optional<Connection> Listener::accept_now() {
  for (const FileDescriptor& fd : sockets_) {
    Address peer;
    peer.length = sizeof(peer.storage);
    FileDescriptor socket(accept4(fd.get(), reinterpret_cast<sockaddr*>(&peer.storage),
                                  &peer.length, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.is_open()) return Connection(std::move(socket), peer);
  }
  return std::nullopt;
}

std::vector<int> Listener::fds() const {
  std::vector<int> numbers;
  for (const FileDescriptor& fd : sockets_) numbers.push_back(fd.get());
  return numbers;
}

}  // namespace smp::tcp
