// SPDX-License-Identifier: Apache-2.0
// TCP with a deadline on every step, for code that may block.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/file.h"

namespace smp::tcp {

/// An IPv4 or IPv6 address, with a port when it is an end of a connection.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  [[nodiscard]] int family() const { return storage.ss_family; }
  [[nodiscard]] int port() const;
  [[nodiscard]] std::string text() const;  ///< without the port
  /// The same machine, whatever the ports; an IPv4 address mapped into IPv6 equals itself.
  [[nodiscard]] bool same_host(const Address& other) const;
};

/// All addresses of a name or of an address in text form, of the family if one is given; empty when
/// it has none (yet). Blocks as the resolver does: some seconds.
std::vector<Address> resolve(const std::string& host, int port, int family = AF_UNSPEC);

/// This side's end of a socket. Throws HostError.
Address local_address(int socket);

/// One TCP connection. Every call throws HostError that says what failed.
class Connection {
 public:
  /// Tries one address after the other, each for at most `limit`.
  static Connection open(const std::vector<Address>& addresses, std::chrono::milliseconds limit);

  /// `socket` must not block.
  Connection(FileDescriptor socket, Address peer) : socket_(std::move(socket)), peer_(peer) {}

  /// Fills `bytes`.
  void read(std::span<std::byte> bytes, Deadline deadline);
  /// Up to and without the newline (and a carriage return before it). A line of more than `longest`
  /// bytes is an error.
  std::string read_line(std::size_t longest, Deadline deadline);
  void write(std::string_view bytes, Deadline deadline);

  [[nodiscard]] const Address& peer() const { return peer_; }
  /// This side's.
  [[nodiscard]] Address own() const;
  /// For options and poll(); it does not block.
  [[nodiscard]] int fd() const { return socket_.get(); }

 private:
  FileDescriptor socket_;
  Address peer_;
};

/// A listening socket.
class Listener {
 public:
  /// On each of `addresses` in text form, on all when there are none. Port 0 takes a free one.
  /// Throws HostError.
  Listener(const std::vector<std::string>& addresses, int port);

  [[nodiscard]] int port() const { return port_; }

  /// None when nobody came before `deadline`.
  std::optional<Connection> accept(Deadline deadline);
  /// The same without waiting.
  std::optional<Connection> accept_now();
  /// Its sockets, for poll().
  [[nodiscard]] std::vector<int> fds() const;

  /// Nobody can connect any more.
  void close() { sockets_.clear(); }

 private:
  std::vector<FileDescriptor> sockets_;
  int port_ = 0;
};

}  // namespace smp::tcp
