// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/session/store_rounds.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <thread>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/session/poll_pause.h"

namespace smp::checkpoint {
namespace {

/// Between two looks whether the wait was given up.
constexpr std::chrono::milliseconds kLookInterval{20};

}  // namespace

StoreRounds::StoreRounds(session::Session& session, const std::string& name)
    : rank_(session.ranks().rank),
      size_(session.ranks().size),
      timeout_(session.options().timeout),
      store_(session.side_store()),
      name_(name) {}

std::vector<std::string> StoreRounds::all_gather(const std::string& what, const std::string& text) {
  const std::string round = fmt::format("{}/{}", name_, ++round_);
  const auto key_of = [&](int rank) { return fmt::format("{}/{}", round, rank); };
  const std::string all = round + "/all";
  std::vector<std::string> texts;
  if (rank_ != 0) {
    session::asking_store(rank_, [&] { store_->set(key_of(rank_), text); });
    await(what, {all});
    const auto told = session::asking_store(rank_, [&] {
      store_->deleteKey(key_of(rank_));
      return store_->get_to_str(all);
    });
    return nlohmann::json::parse(told).get<std::vector<std::string>>();
  }
  std::vector<std::string> keys;
  for (int rank = 1; rank < size_; ++rank) keys.push_back(key_of(rank));
  await(what, keys);
  texts.push_back(text);
  session::asking_store(rank_, [&] {
    if (size_ == 1) return;
    for (const std::vector<std::uint8_t>& value : store_->multiGet(keys)) {
      texts.emplace_back(value.begin(), value.end());
    }
    store_->set(all, json_line(nlohmann::json(texts)));
    // Whoever has come to this round has read the one before.
    if (round_ > 1) store_->deleteKey(fmt::format("{}/{}/all", name_, round_ - 1));
  });
  return texts;
}

void StoreRounds::await(const std::string& what, const std::vector<std::string>& keys) {
  const auto there = [&](const std::vector<std::string>& some) {
    return session::asking_store(rank_, [&] { return store_->check(some); });
  };
  const Deadline begin = Clock::now();
  const Deadline deadline = begin + timeout_;
  while (!keys.empty() && !there(keys)) {
    if (stopped_) throw HostError("{} was given up: the job ends", what);
    if (Clock::now() >= deadline) {
      std::vector<int> absent;
      std::vector<int> all;
      for (int rank = 0; rank < size_; ++rank) {
        all.push_back(rank);
        const std::size_t index = static_cast<std::size_t>(rank) - 1;
        if (rank_ == 0 ? rank > 0 && !there({keys[index]}) : rank == 0) absent.push_back(rank);
      }
      throw session::waited_in_vain(what, rank_, timeout_, session::described(absent),
                                    session::described(all), {});
    }
    const Deadline next =
        std::min(deadline, Clock::now() + session::poll_pause(Clock::now() - begin, size_));
    while (!stopped_ && Clock::now() < next) {
      std::this_thread::sleep_until(std::min<Deadline>(next, Clock::now() + kLookInterval));
    }
  }
}

}  // namespace smp::checkpoint
