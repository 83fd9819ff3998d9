// SPDX-License-Identifier: Apache-2.0
// The address at which other hosts reach this one.
#pragma once

#include <string>

namespace smp::transport {

/// Numeric, of the interface that is named; without a name, of the one that leads to `peer` (a host
/// name, may be empty), else the first that is up and no loopback. IPv4 before IPv6.
/// Throws ConfigError, with the interfaces there are, if nothing fits, and HostError.
std::string network_address(const std::string& interface, const std::string& peer);

}  // namespace smp::transport
