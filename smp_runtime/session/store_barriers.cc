// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/store_barriers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/session/poll_pause.h"

namespace smp::session {

using std::chrono::milliseconds;

namespace {

/// Between two looks at what the watch has found, which ask no store.
constexpr milliseconds kLookInterval{100};

}  // namespace

StoreBarriers::StoreBarriers(StorePtr store, int rank, int size, milliseconds timeout,
                             std::shared_ptr<DeadlockDetector> watch)
    : store_(std::move(store)),
      rank_(rank),
      size_(size),
      timeout_(timeout),
      watch_(std::move(watch)) {}

std::string StoreBarriers::next(const std::string& label) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}/{}", label, ++calls_[label]);
}

void StoreBarriers::all(const std::string& what, const std::string& label,
                        const std::vector<int>& ranks, std::string_view advice) {
  if (ranks.size() == 1) return;
  const auto size = static_cast<std::int64_t>(ranks.size());
  const std::string key = next(fmt::format("all/{}/{}", label, ranks.front()));
  const WaitingCall waiting(watch_.get(), what, "all/" + label, ranks);
  asking_store(rank_, [&] {
    store_->set(fmt::format("{}/{}", key, rank_), std::string());
    const std::string complete = key + "/complete";
    if (store_->add(key + "/came", 1) == size) store_->set(complete, std::string());
    if (!appear({complete}, timeout())) {
      std::vector<int> absent;
      for (const int rank : ranks) {
        if (!store_->check({fmt::format("{}/{}", key, rank)})) absent.push_back(rank);
      }
      // Whoever came takes its key away once all have come.
      if (!absent.empty() && !store_->check({complete})) throw in_vain(what, absent, ranks, advice);
    }
    store_->deleteKey(fmt::format("{}/{}", key, rank_));
    if (store_->add(key + "/left", 1) != size) return;
    for (const char* name : {"came", "complete", "left"}) {
      store_->deleteKey(fmt::format("{}/{}", key, name));
    }
  });
}

std::string StoreBarriers::announce(const std::string& label, int receiver,
                                    const std::string& note) {
  std::string call = next(fmt::format("pair/{}/{}/{}", label, rank_, receiver));
  asking_store(rank_, [&] { store_->set(call + "/sender", note); });
  return call;
}

void StoreBarriers::await_receiver(const std::string& what, const std::string& call, int receiver) {
  await(what, call + "/receiver", receiver);
}

std::string StoreBarriers::await_sender(const std::string& what, const std::string& label,
                                        int sender) {
  const std::string call = next(fmt::format("pair/{}/{}/{}", label, sender, rank_));
  asking_store(rank_, [&] { store_->set(call + "/receiver", std::string()); });
  return await(what, call + "/sender", sender);
}

std::string StoreBarriers::await(const std::string& what, const std::string& key, int peer) {
  // The label is the same on both, without the call's number.
  const WaitingCall waiting(watch_.get(), what, key.substr(0, key.rfind('/')), {peer});
  return asking_store(rank_, [&] {
    if (!appear({key}, timeout())) throw in_vain(what, {peer}, {peer, rank_});
    std::string note = store_->get_to_str(key);
    store_->deleteKey(key);
    return note;
  });
}

WaitTimeout StoreBarriers::in_vain(const std::string& what, const std::vector<int>& absent,
                                   std::vector<int> ranks, std::string_view advice) const {
  std::ranges::sort(ranks);
  return waited_in_vain(what, rank_, timeout(), described(absent), described(ranks), advice);
}

bool StoreBarriers::appear(const std::vector<std::string>& keys, milliseconds limit) {
  // Not the store's own wait(): each deadline of it is a warning of c10d in the log.
  const auto begin = Clock::now();
  const auto there = [&] {
    try {
      return store_->check(keys);
    } catch (const c10::DistError&) {  // rank 0 has left, perhaps since it was told of a mismatch
      if (watch_) watch_->check_failed();
      throw;
    }
  };
  while (!there()) {
    const auto waited = Clock::now() - begin;
    if (waited >= limit) return false;
    const auto next = begin + std::min<Clock::duration>(limit, waited + poll_pause(waited, size_));
    do {
      if (watch_) watch_->check();
      std::this_thread::sleep_until(std::min<Deadline>(next, Clock::now() + kLookInterval));
    } while (Clock::now() < next);
  }
  return true;
}

}  // namespace smp::session
