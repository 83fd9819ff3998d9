// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/callers.h"

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>
#include <vector>

#include <poll.h>

#include "smp_runtime/core/error.h"

namespace smp::tcp {
namespace {

constexpr std::ptrdiff_t kMostOfOneHost = 16;
constexpr std::ptrdiff_t kMostOfAll = 256;

}  // namespace

std::optional<Callers::Caller> Callers::next(Deadline deadline) {
  while (true) {
    take_all();
    const Deadline now = Clock::now();
    Deadline next = deadline;
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      if (!hear(*one) || now >= one->deadline) {
        one = waiting_.erase(one);
      } else if (rules_.is_whole(one->caller.heard)) {
        std::optional<Caller> caller = std::move(one->caller);
        waiting_.erase(one);
        return caller;
      } else {
        next = std::min(next, (one++)->deadline);
      }
    }
    if (now >= deadline) return std::nullopt;
    std::vector<pollfd> ready;
    for (const int fd : listener_.fds()) ready.push_back({.fd = fd, .events = POLLIN});
    for (const Waiting& one : waiting_) {
      ready.push_back({.fd = one.caller.connection.fd(), .events = POLLIN});
    }
    if (poll(ready.data(), ready.size(), poll_timeout(next)) < 0 && errno != EINTR) {
      throw HostError("poll: {}", system_error_text(errno));
    }
  }
}

void Callers::take_all() {
  while (std::optional<Connection> connection = listener_.accept_now()) {
    try {
      const auto told = rules_.greet ? rules_.greet(*connection) : std::string();
      if (!told) continue;
      // A socket that is new takes a few words at once.
      connection->write(*told, Clock::now());
      waiting_.push_back(
          {.caller = {std::move(*connection), *told, {}}, .deadline = Clock::now() + rules_.limit});
    } catch (const HostError&) {
      continue;  // gone again
    }
    drop_late(waiting_.back().caller.connection);
  }
}

void Callers::drop_late(const Connection& newest) {
  const Address host = newest.peer();
  const auto of_host = [&](const Waiting& one) {
    return one.caller.connection.peer().same_host(host);
  };
  const auto expected = static_cast<std::ptrdiff_t>(rules_.expected);
  if (std::ranges::count_if(waiting_, of_host) > kMostOfOneHost + expected) {
    waiting_.erase(std::ranges::find_if(waiting_, of_host));
  } else if (std::ssize(waiting_) > kMostOfAll + expected) {
    waiting_.pop_front();
  }
}

bool Callers::hear(Waiting& one) const {
  // Byte by byte: what follows belongs to whoever goes on with the connection.
  while (!rules_.is_whole(one.caller.heard)) {
    char byte = 0;
    const ssize_t count = recv(one.caller.connection.fd(), &byte, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == EAGAIN;
    if (count == 0 || one.caller.heard.size() >= rules_.longest) return false;
    one.caller.heard += byte;
  }
  return true;
}

}  // namespace smp::tcp
