// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/programs/counted_calls.h"

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

namespace {

struct {
  std::atomic<std::int64_t> requests{0};
  std::atomic<std::int64_t> bytes{0};
  std::atomic<std::int64_t> connections{0};
  std::atomic<std::int64_t> lookups{0};
} made;

/// libc's function of that name.
template <typename Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

void count(ssize_t moved) {
  if (moved > 0) made.bytes.fetch_add(moved, std::memory_order_relaxed);
}

}  // namespace

// Declared by libc with attributes of its own.
extern "C" {

ssize_t send(int socket, const void* data, size_t size, int flags) {
  static auto* const function = real<decltype(send)>("send");
  made.requests.fetch_add(1, std::memory_order_relaxed);
  const ssize_t sent = function(socket, data, size, flags);
  count(sent);
  return sent;
}

ssize_t recv(int socket, void* data, size_t size, int flags) {
  static auto* const function = real<decltype(recv)>("recv");
  const ssize_t received = function(socket, data, size, flags);
  count(received);
  return received;
}

int connect(int socket, const sockaddr* address, socklen_t size) {
  static auto* const function = real<decltype(connect)>("connect");
  made.connections.fetch_add(1, std::memory_order_relaxed);
  return function(socket, address, size);
}

int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  static auto* const function = real<decltype(getaddrinfo)>("getaddrinfo");
  // A number is no name, whatever the flags allow.
  unsigned char bytes[sizeof(in6_addr)];
  const bool is_number = host == nullptr || inet_pton(AF_INET, host, bytes) == 1 ||
                         inet_pton(AF_INET6, host, bytes) == 1;
  if (!is_number) made.lookups.fetch_add(1, std::memory_order_relaxed);
  return function(host, service, hints, found);
}

int getnameinfo(const sockaddr* address, socklen_t size, char* host, socklen_t host_size,
                char* service, socklen_t service_size, int flags) {
  static auto* const function = real<decltype(getnameinfo)>("getnameinfo");
  if (host != nullptr && (flags & NI_NUMERICHOST) == 0) {
    made.lookups.fetch_add(1, std::memory_order_relaxed);
  }
  return function(address, size, host, host_size, service, service_size, flags);
}

}  // extern "C"

namespace smp::bench {

Counts Counts::now() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  Counts counts{.requests = made.requests.load(),
                .bytes = made.bytes.load(),
                .connections = made.connections.load(),
                .lookups = made.lookups.load(),
                .processor_s = seconds(used.ru_utime) + seconds(used.ru_stime)};
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) counts.memory_kb = std::stoll(line.substr(6));
    if (line.starts_with("Threads:")) counts.threads = std::stoll(line.substr(8));
  }
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  counts.time_s = std::chrono::duration<double>(since).count();
  return counts;
}

}  // namespace smp::bench
