// SPDX-License-Identifier: Apache-2.0
// Which network interface the job uses. The configured name is not always there: one SDK writes
// `ethwe` into containers that have `eth0`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace entrypoint {

/// One interface that is up, with its IPv4 addresses in dotted form.
struct Interface {
  std::string name;
  bool loopback = false;
  std::vector<std::string> addresses;
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
};

/// Pure. The configured interface when it has an address other than link-local; else the one that
/// leads to the other hosts, else the only usable one. Throws ConfigError, with the list of what is
/// there, when several hosts are to talk and none of these exists.
InterfaceChoice choose_interface(const InterfaceQuestion& question);

/// This host's interfaces. Throws HostError.
std::vector<Interface> list_interfaces();

}  // namespace entrypoint
