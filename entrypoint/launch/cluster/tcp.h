// SPDX-License-Identifier: Apache-2.0
// TCP with a deadline on every step, for code that runs in helpers and may block.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/socket.h>

#include "entrypoint/launch/process/file_descriptor.h"
#include "entrypoint/launch/process/process_runner.h"

namespace entrypoint::launch {

/// An IPv4 or IPv6 address, with a port when it is an end of a connection.
struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] std::string text() const;  ///< without the port
  /// The same machine, whatever the ports; an IPv4 address mapped into IPv6 equals itself.
  [[nodiscard]] bool same_host(const Address& other) const;
};

/// All addresses of a name, empty when it has none (yet). Blocks as the resolver does: some
/// seconds.
std::vector<Address> resolve(const std::string& host, int port);

/// One TCP connection. Every call throws HostError that says what failed.
class Connection {
 public:
  /// Tries one address after the other, each for at most `limit`.
  static Connection open(const std::vector<Address>& addresses, std::chrono::milliseconds limit);

  Connection(FileDescriptor socket, Address peer) : socket_(std::move(socket)), peer_(peer) {}

  /// Up to and without the newline (and a carriage return before it). A line of more than `longest`
  /// bytes is an error.
  std::string read_line(std::size_t longest, Deadline deadline);
  void write(std::string_view bytes, Deadline deadline);

  [[nodiscard]] const Address& peer() const { return peer_; }
  /// This side's.
  [[nodiscard]] Address own() const;

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

 private:
  std::vector<FileDescriptor> sockets_;
  int port_ = 0;
};

}  // namespace entrypoint::launch
