// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include <fmt/ranges.h>
#include <netinet/in.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/transport/fabric/network.h"

namespace smp::transport {
namespace {

/// Addresses for documentation (RFC 5737, RFC 3849): packets to them leave by the default route.
const std::string kAnywhere = "192.0.2.1";
const std::string kAnywhereSix = "2001:db8::1";

struct Candidate {
  std::string interface;
  std::string address;
  bool loopback;
};

bool is_link_local(const tcp::Address& address) {
  if (address.family() != AF_INET6) return false;
  sockaddr_in6 six{};
  std::memcpy(&six, &address.storage, sizeof(six));
  return IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr);
}

/// Addresses of this host, those of IPv4 first.
std::vector<Candidate> candidates() {
  const std::vector<NetworkInterface> interfaces = network_interfaces();
  std::vector<Candidate> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const NetworkInterface& interface : interfaces) {
      for (const tcp::Address& address : interface.addresses) {
        if (address.family() != family || is_link_local(address)) continue;
        found.push_back({interface.name, address.text(), interface.loopback});
      }
    }
  }
  return found;
}

/// The source address towards `peer`, which may be empty.
std::optional<std::string> source_towards(const std::string& peer) {
  constexpr int kAnyPort = 9;
  if (peer.empty()) return std::nullopt;
  const std::vector<tcp::Address> addresses = tcp::resolve(peer, kAnyPort);
  if (addresses.empty()) return std::nullopt;
  const std::optional<tcp::Address> source = source_address(addresses.front());
  return source ? std::optional(source->text()) : std::nullopt;
}

}  // namespace

std::vector<std::string> network_addresses(const std::string& interface, const std::string& peer) {
  std::vector<std::string> found;
  const std::vector<Candidate> all = candidates();
  const auto take = [&](const std::string& address) {
    if (std::ranges::find(found, address) == found.end()) found.push_back(address);
  };
  for (const std::string& there : {peer, kAnywhere, kAnywhereSix}) {
    if (!interface.empty()) break;
    const std::optional<std::string> source = source_towards(there);
    for (const Candidate& one : all) {
      if (source && one.address == *source && !one.loopback) take(one.address);
    }
  }
  for (const Candidate& one : all) {
    if (interface.empty() ? !one.loopback : one.interface == interface) take(one.address);
  }
  if (!found.empty()) return found;
  throw ConfigError("no address to be reached at by other hosts: {}; there are: {}",
                    interface.empty() ? "no interface but the loopback is up"
                                      : fmt::format("no interface {} is up", interface),
                    fmt::join(interface_texts(), ", "));
}

std::string network_address(const std::string& interface, const std::string& peer) {
  return network_addresses(interface, peer).front();
}

std::vector<std::string> interface_texts() {
  std::vector<std::string> texts;
  for (const Candidate& one : candidates()) {
    texts.push_back(fmt::format("{} ({})", one.interface, one.address));
  }
  return texts;
}

}  // namespace smp::transport
