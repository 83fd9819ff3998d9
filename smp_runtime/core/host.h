// SPDX-License-Identifier: Apache-2.0
// This host: its name, its network interfaces, and which address it has towards another host.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/utsname.h>

#include "smp_runtime/core/tcp.h"

namespace smp {

/// This host's own name for itself; for people and for names of files.
inline std::string host_name() {
  utsname names{};
  uname(&names);
  return names.nodename;
}

/// One that is up.
struct NetworkInterface {
  std::string name;
  bool loopback = false;
  std::vector<tcp::Address> addresses;  ///< of IPv4 and IPv6, without a port
};

/// Interfaces that have an address. Throws HostError.
std::vector<NetworkInterface> network_interfaces();

/// The address from which packets to `peer` would leave; none where no route leads there. Sends
/// nothing.
std::optional<tcp::Address> source_address(const tcp::Address& peer);

}  // namespace smp
