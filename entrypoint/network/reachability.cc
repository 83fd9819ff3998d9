// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/network/reachability.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>

#include "entrypoint/network/interfaces.h"
#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/file.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/core/tcp.h"

namespace entrypoint {

namespace tcp = smp::tcp;
using smp::Clock;
using smp::Deadline;
using smp::FileDescriptor;
using smp::poll_timeout;

namespace {

struct Watched {
  std::string host;
  std::vector<tcp::Address> addresses;  ///< of the last time that the name had some
  int missed = 0;
  std::string reason;
};

struct Look {
  Watched* of;
  FileDescriptor socket;
  std::string failure;  ///< not empty: it failed at once
};

// Names of containers vanish with them, so addresses are kept.
Look begin_look(Watched& watched, int port) {
  if (watched.addresses.empty()) watched.addresses = tcp::resolve(watched.host, port);
  if (watched.addresses.empty()) {
    return {.of = &watched, .socket = {}, .failure = "the name does not resolve"};
  }
  const tcp::Address& address = watched.addresses.front();
  FileDescriptor fd(socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  std::string failure;
  if (connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    failure = std::strerror(errno);
  }
  return {.of = &watched, .socket = std::move(fd), .failure = failure};
}

void settle(Look& look) {
  int error = 0;
  socklen_t size = sizeof(error);
  if (look.failure.empty() &&
      getsockopt(look.socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error != 0) {
    look.failure = std::strerror(error);
  }
  look.of->missed = look.failure.empty() ? 0 : look.of->missed + 1;
  look.of->reason = look.failure;
}

std::vector<Watched> watched_hosts(const WatchRequest& request) {
  std::vector<Watched> all;
  for (const std::string& host : request.hosts) all.push_back({.host = host});
  return all;
}

void look_at_all(std::vector<Watched>& all, const WatchRequest& request) {
  std::vector<Look> open;
  for (Watched& watched : all) {
    Look look = begin_look(watched, request.port);
    if (look.failure.empty()) {
      open.push_back(std::move(look));
    } else {
      settle(look);
    }
  }
  const Deadline deadline = Clock::now() + request.limit;
  while (!open.empty()) {
    std::vector<pollfd> ready;
    for (const Look& look : open) {
      ready.push_back({.fd = look.socket.get(), .events = POLLOUT, .revents = 0});
    }
    const int left = poll_timeout(deadline);
    const int count = left > 0 ? poll(ready.data(), ready.size(), left) : 0;
    std::vector<Look> waiting;
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (count > 0 && ready[i].revents != 0) {
        settle(open[i]);
      } else if (count == 0) {
        open[i].failure = fmt::format("no answer within {} ms", request.limit.count());
        settle(open[i]);
      } else {
        waiting.push_back(std::move(open[i]));
      }
    }
    open = std::move(waiting);
  }
}

}  // namespace

/// The answer of a lookup, kept for an asker that may have stopped waiting.
struct NameLookup::Answer {
  std::mutex mutex;  // guards the two below
  std::condition_variable done_changed;
  bool done = false;
  std::optional<smp::tcp::Address> address;

  std::optional<smp::tcp::Address> wait(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex);
    done_changed.wait_for(lock, timeout, [&] { return done; });
    return address;
  }
};

NameLookup::NameLookup(const std::string& host) : answer_(std::make_shared<Answer>()) {
  std::thread([answer = answer_, host] {
    constexpr int kAnyPort = 9;
    std::vector<smp::tcp::Address> found = smp::tcp::resolve(host, kAnyPort);
    std::ranges::stable_partition(found, [](const auto& one) { return one.family() == AF_INET; });
    const std::lock_guard lock(answer->mutex);
    if (!found.empty()) answer->address = found.front();
    answer->done = true;
    answer->done_changed.notify_one();
  }).detach();
}

bool NameLookup::resolves(std::chrono::milliseconds timeout) const {
  return answer_->wait(timeout).has_value();
}

std::string NameLookup::route(std::chrono::milliseconds timeout) const {
  const auto peer = answer_->wait(timeout);
  const auto source = peer ? smp::source_address(*peer) : std::nullopt;
  if (!source) return "";
  for (const Interface& interface : list_interfaces()) {
    if (std::ranges::find(interface.addresses, source->text()) != interface.addresses.end()) {
      return interface.name;
    }
  }
  return "";
}

std::vector<std::string> silent_hosts(const WatchRequest& request) {
  std::vector<Watched> all = watched_hosts(request);
  for (int look = 0; look < request.misses && !all.empty(); ++look) {
    if (look > 0) poll(nullptr, 0, static_cast<int>(request.period.count()));
    look_at_all(all, request);
    std::erase_if(all, [](const Watched& watched) { return watched.missed == 0; });
  }
  std::vector<std::string> silent;
  for (const Watched& watched : all) silent.push_back(watched.host);
  return silent;
}

std::string watch_hosts(const WatchRequest& request) {
  std::vector<Watched> all = watched_hosts(request);
  while (true) {
    const Deadline next = Clock::now() + request.period;
    look_at_all(all, request);
    for (const Watched& watched : all) {
      if (watched.missed < request.misses) continue;
      return fmt::format("{} is lost: its port {} did not answer {} times in a row ({})",
                         watched.host, request.port, watched.missed, watched.reason);
    }
    poll(nullptr, 0, poll_timeout(next));
  }
}

}  // namespace entrypoint
