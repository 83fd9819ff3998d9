// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/network/name_lookup.h"

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "entrypoint/network/interfaces.h"
#include "smp_runtime/core/host.h"

namespace entrypoint {

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

}  // namespace entrypoint
