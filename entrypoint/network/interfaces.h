// SPDX-License-Identifier: Apache-2.0
// The network interface of the job. The configured name is not always there: one SDK writes `ethwe`
// into containers that have `eth0`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// One interface that is up.
struct Interface {
  std::string name;
  bool loopback = false;
  std::vector<std::string> addresses;  ///< of IPv4 and IPv6, in text form

  /// Addresses that servers of the job listen at: of IPv4, or of IPv6 without any of IPv4,
  /// link-local ones aside.
  [[nodiscard]] std::vector<std::string> listen_addresses() const;
};

struct InterfaceQuestion {
  std::string current_host;           ///< for messages
  std::string configured;             ///< network_interface_name of resourceconfig.json
  std::vector<Interface> interfaces;  ///< this host's
  std::string route;                  ///< interface that leads to the first other host, or empty
  bool several_hosts = false;
};

struct InterfaceChoice {
  std::string name;     ///< empty on one host: name no interface at all
  std::string warning;  ///< not empty when the configured one was not taken
  std::string note;     ///< worth a line in the log; or empty
};

/// Pure. The configured interface when it has an address other than link-local, of IPv4 or of the
/// family that leads to the other hosts; else the one that leads there, else the only usable one.
/// Throws ConfigError, with the list of what is there, when several hosts are to talk and none of
/// these exists.
InterfaceChoice choose_interface(const InterfaceQuestion& question);

/// This host's interfaces. Throws HostError.
std::vector<Interface> list_interfaces();

}  // namespace entrypoint
