// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/network_address.h"

#include <memory>
#include <optional>
#include <vector>

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file_descriptor.h"

namespace smp::transport {
namespace {

struct Interface {
  std::string name;
  std::string address;
  int family;
  bool loopback;
};

std::string numeric(const sockaddr* address) {
  std::string text(NI_MAXHOST, '\0');
  const auto size = static_cast<socklen_t>(address->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                                         : sizeof(sockaddr_in6));
  if (getnameinfo(address, size, text.data(), NI_MAXHOST, nullptr, 0, NI_NUMERICHOST) != 0) {
    return "";
  }
  text.resize(text.find('\0'));
  return text;
}

bool is_link_local(const sockaddr* address) {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

/// Those that are up: of IPv4 first.
std::vector<Interface> interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<Interface> found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family ||
          (one->ifa_flags & IFF_UP) == 0 || is_link_local(one->ifa_addr)) {
        continue;
      }
      found.push_back({.name = one->ifa_name,
                       .address = numeric(one->ifa_addr),
                       .family = family,
                       .loopback = (one->ifa_flags & IFF_LOOPBACK) != 0});
    }
  }
  return found;
}

/// The source address that the kernel takes towards `peer`. Nothing is sent.
std::optional<std::string> towards(const std::string& peer) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  if (peer.empty() || getaddrinfo(peer.c_str(), "9", &hints, &list) != 0) return std::nullopt;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  const FileDescriptor socket(
      ::socket(list->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, list->ai_protocol));
  sockaddr_storage here{};
  socklen_t size = sizeof(here);
  if (!socket.is_open() || connect(socket.get(), list->ai_addr, list->ai_addrlen) != 0 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&here), &size) != 0) {
    return std::nullopt;
  }
  return numeric(reinterpret_cast<const sockaddr*>(&here));
}

}  // namespace

std::string network_address(const std::string& interface, const std::string& peer) {
  const std::vector<Interface> all = interfaces();
  if (interface.empty()) {
    const std::optional<std::string> source = towards(peer);
    for (const Interface& one : all) {
      if (source && one.address == *source && !one.loopback) return one.address;
    }
  }
  std::vector<std::string> names;
  for (const Interface& one : all) {
    if (interface.empty() ? !one.loopback : one.name == interface) return one.address;
    names.push_back(fmt::format("{} ({})", one.name, one.address));
  }
  throw ConfigError("no address to be reached at by other hosts: {}; there are: {}",
                    interface.empty() ? "no interface but the loopback is up"
                                      : fmt::format("no interface {} is up", interface),
                    fmt::join(names, ", "));
}

}  // namespace smp::transport
