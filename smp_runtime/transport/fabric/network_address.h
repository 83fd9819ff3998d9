// SPDX-License-Identifier: Apache-2.0
// The address at which other hosts reach this one.
#pragma once

#include <string>
#include <vector>

namespace smp::transport {

/// Numeric addresses at which other hosts may reach this one, the likeliest first: of the interface
/// that is named; without a name, of the one that leads to `peer` (a host name, may be empty), then
/// of the default route, then of all that are up and no loopback. IPv4 before IPv6.
/// Throws ConfigError, with the interfaces there are, if nothing fits, and HostError.
std::vector<std::string> network_addresses(const std::string& interface, const std::string& peer);
/// The first of them.
std::string network_address(const std::string& interface, const std::string& peer);

/// This host's interfaces with their addresses, for messages. Throws HostError.
std::vector<std::string> interface_texts();

}  // namespace smp::transport
