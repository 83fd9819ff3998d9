// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/host.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include "smp_runtime/core/error.h"

namespace smp {

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) {
    throw HostError("network interfaces cannot be listed: {}", system_error_text(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<NetworkInterface> interfaces;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    tcp::Address address;
    address.length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, entry->ifa_addr, address.length);
    auto found = std::ranges::find(interfaces, entry->ifa_name, &NetworkInterface::name);
    if (found == interfaces.end()) {
      const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      found = interfaces.insert(found, {.name = entry->ifa_name, .loopback = loopback});
    }
    found->addresses.push_back(address);
  }
  return interfaces;
}

std::optional<tcp::Address> source_address(const tcp::Address& peer) {
  // Connecting a datagram socket asks the kernel for the route.
  const FileDescriptor socket(::socket(peer.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open() || connect(socket.get(), peer.get(), peer.length) != 0) {
    return std::nullopt;
  }
  return tcp::local_address(socket.get());
}

}  // namespace smp
