// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "entrypoint/fabric/interfaces.h"
#include "entrypoint/fabric/name_lookup.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/file_descriptor.h"

namespace entrypoint {
namespace {

std::string dotted(const in_addr& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address, text, sizeof text);
  return text;
}

sockaddr_in as_ipv4(const sockaddr* address) {
  sockaddr_in result{};
  std::memcpy(&result, address, sizeof result);
  return result;
}

/// The local address from which packets to `peer` would leave. Connecting a datagram socket asks
/// the kernel for the route and sends nothing.
std::optional<std::string> source_address(const in_addr& peer) {
  const smp::FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.is_open()) return std::nullopt;
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(22);
  target.sin_addr = peer;
  sockaddr_storage local{};
  socklen_t size = sizeof local;
  sockaddr_storage generic{};
  std::memcpy(&generic, &target, sizeof target);
  const auto as_sockaddr = [](sockaddr_storage& storage) {
    return static_cast<sockaddr*>(static_cast<void*>(&storage));
  };
  if (::connect(socket.get(), as_sockaddr(generic), sizeof target) != 0) return std::nullopt;
  if (::getsockname(socket.get(), as_sockaddr(local), &size) != 0) return std::nullopt;
  return dotted(as_ipv4(as_sockaddr(local)).sin_addr);
}

}  // namespace

std::vector<Interface> list_interfaces() {
  ifaddrs* raw = nullptr;
  if (::getifaddrs(&raw) != 0) {
    throw smp::HostError("network interfaces cannot be listed: {}", std::strerror(errno));
  }
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(raw, &::freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* entry = raw; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if ((entry->ifa_flags & IFF_UP) == 0) continue;
    auto found = std::ranges::find(interfaces, entry->ifa_name, &Interface::name);
    if (found == interfaces.end()) {
      const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
      found = interfaces.insert(found, {.name = entry->ifa_name, .loopback = loopback});
    }
    found->addresses.push_back(dotted(as_ipv4(entry->ifa_addr).sin_addr));
  }
  return interfaces;
}

/// What a lookup leaves for its asker, who may have stopped waiting.
struct NameLookup::Answer {
  std::mutex mutex;  // guards the two below
  std::condition_variable done_changed;
  bool done = false;
  std::optional<in_addr> address;

  std::optional<in_addr> wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    done_changed.wait_for(lock, timeout, [&] { return done; });
    return address;
  }
};

NameLookup::NameLookup(const std::string& host) : answer_(std::make_shared<Answer>()) {
  std::thread([answer = answer_, host] {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    const int error = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    const std::lock_guard lock(answer->mutex);
    if (error == 0) {
      answer->address = as_ipv4(found->ai_addr).sin_addr;
      ::freeaddrinfo(found);
    }
    answer->done = true;
    answer->done_changed.notify_one();
  }).detach();
}

bool NameLookup::resolves(std::chrono::milliseconds timeout) const {
  return answer_->wait(timeout).has_value();
}

std::string NameLookup::route(std::chrono::milliseconds timeout) const {
  const auto peer = answer_->wait(timeout);
  const auto source = peer ? source_address(*peer) : std::nullopt;
  if (!source) return "";
  for (const Interface& interface : list_interfaces()) {
    if (std::ranges::find(interface.addresses, *source) != interface.addresses.end()) {
      return interface.name;
    }
  }
  return "";
}

std::string route_to_host(const std::string& host, std::chrono::milliseconds timeout) {
  return NameLookup(host).route(timeout);
}

bool resolves(const std::string& host, std::chrono::milliseconds timeout) {
  return NameLookup(host).resolves(timeout);
}

}  // namespace entrypoint
