// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/deadlock/deadlock_detector.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/named_thread.h"
#include "smp_runtime/core/text.h"

namespace smp::session {
namespace {

constexpr std::size_t kMostPolled = 64;  // ranks at one poll
constexpr std::size_t kFew = 16;         // so many that a call needs are all polled
constexpr std::size_t kMostTold = 32;    // ranks in other calls that those in a call tell of
constexpr int kManyPolls = 8;            // after these most polls are left out

std::string key_of(int rank) { return fmt::format("waits/{}", rank); }
/// Where those in a call tell each other of ranks in other calls.
std::string key_of_told(const std::string& label) { return "waits in other calls/" + label; }

bool same_call(const Wait& one, const Wait& other) {
  return one.label == other.label && one.turn == other.turn && one.ended == other.ended &&
         one.mismatch == other.mismatch;
}

/// A wait for a rank that saves a large model is long and rightful: 1,000 ranks need not poll each
/// second.
bool is_due(int polls) { return polls < kManyPolls || polls % kManyPolls == 0; }

}  // namespace

DeadlockDetector::DeadlockDetector(std::shared_ptr<transport::KeyValueStore> store, int rank,
                                   std::function<std::string()> line, Timing timing)
    : rank_(rank), line_(std::move(line)), timing_(timing), store_(std::move(store)) {
  thread_ = named_thread("smp-waits", [this] { watch(); });
}

DeadlockDetector::~DeadlockDetector() { stop(); }

void DeadlockDetector::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DeadlockDetector::add_group(const std::string& name, std::vector<int> ranks) {
  const std::lock_guard lock(mutex_);
  groups_[name] = std::move(ranks);
}

std::vector<int> DeadlockDetector::members(const std::string& group) const {
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(group);
  return found == groups_.end() ? std::vector<int>() : found->second;
}

std::int64_t DeadlockDetector::start(const std::string& label) {
  const std::lock_guard lock(mutex_);
  std::int64_t& begun = begun_[label];
  // The others must not take a call for begun that never comes.
  return mismatch_.empty() ? ++begun : begun + 1;
}

std::int64_t DeadlockDetector::begin(std::string call, const std::string& label,
                                     std::vector<int> needs, std::optional<std::int64_t> turn) {
  if (!turn) turn = start(label);
  std::erase(needs, rank_);
  {
    const std::lock_guard lock(mutex_);
    if (!mismatch_.empty()) throw CallMismatch("{} after {}", call, mismatch_);
  }
  if (take_back_last()) clear();
  const std::lock_guard lock(mutex_);
  calls_.push_back({.number = ++waits_,
                    .text = std::move(call),
                    .label = label,
                    .turn = *turn,
                    .needs = std::move(needs),
                    .since = Clock::now()});
  return waits_;
}

void DeadlockDetector::end(std::int64_t number) noexcept {
  bool told = false;
  {
    const std::lock_guard lock(mutex_);
    if (calls_.back().number == number) diagnosis_.clear();
    const auto ended = std::ranges::find(calls_, number, &Call::number);
    told = ended->told;
    calls_.erase(ended);
  }
  if (told) clear();
}

/// Marks the last call as untold. Returns true if the store still has it.
bool DeadlockDetector::take_back_last() noexcept {
  const std::lock_guard lock(mutex_);
  return !calls_.empty() && std::exchange(calls_.back().told, false);
}

/// At once, and not by the thread: the others trust that what is written still holds.
void DeadlockDetector::clear() noexcept {
  try {
    const std::lock_guard lock(store_mutex_);
    store_->set(key_of(rank_), {});
  } catch (const std::exception&) {  // the store is lost, which others notice
  }
}

std::string DeadlockDetector::diagnosis() const {
  const std::lock_guard lock(mutex_);
  return diagnosis_;
}

void DeadlockDetector::leave() noexcept {
  stop();
  write_final(true);
}

void DeadlockDetector::write_final(bool ended) noexcept {
  try {
    const std::lock_guard store_lock(store_mutex_);
    const std::lock_guard lock(mutex_);
    store_->set(key_of(rank_), encode({.ended = ended, .mismatch = mismatch_, .begun = begun_}));
  } catch (const std::exception&) {
  }
}

void DeadlockDetector::watch() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, timing_.poll, [this] { return stopping_; })) {
    if (calls_.empty()) continue;
    Call& call = calls_.back();
    if (call.needs.empty() || Clock::now() - call.since < timing_.tell) continue;
    ++call.polls;
    const Call copy = call;
    lock.unlock();
    try {
      poll(copy);
    } catch (const std::exception&) {
    }
    lock.lock();
  }
}

void DeadlockDetector::poll(const Call& call) {
  // Without our locks: it may wait for Python's.
  std::string line = !call.told && line_ ? line_() : std::string();
  const std::lock_guard store_lock(store_mutex_);
  if (!call.told) {
    Wait wait;
    {
      const std::lock_guard lock(mutex_);
      if (calls_.empty() || calls_.back().number != call.number || !mismatch_.empty()) return;
      line_of_call_ = std::move(line);
      wait = described(call);
      calls_.back().told = true;
    }
    store_->set(key_of(rank_), encode(wait));
  }
  if (Clock::now() - call.since < timing_.judge || !is_due(call.polls)) return;
  judge(call, waits_around(call, window_));
}

Wait DeadlockDetector::described(const Call& call) const {
  std::string text = call.text;
  if (!line_of_call_.empty()) text += fmt::format(" ({})", line_of_call_);
  return {.number = call.number,
          .label = call.label,
          .turn = call.turn,
          .text = std::move(text),
          .needs = call.needs,
          .begun = begun_};
}

void DeadlockDetector::check() {
  bool first = false;
  {
    const std::lock_guard lock(mutex_);
    if (mismatch_.empty()) {
      if (diagnosis_.empty()) return;
      mismatch_ = diagnosis_;
      if (!calls_.empty()) calls_.back().told = false;  // end() takes back nothing written now
      first = true;
    }
  }
  if (first) write_final(false);
  throw CallMismatch("{}", mismatch_);
}

void DeadlockDetector::check_failed() {
  {
    const std::lock_guard store_lock(store_mutex_);
    std::unique_lock lock(mutex_);
    if (calls_.empty()) return;
    const Call call = calls_.back();
    lock.unlock();
    const bool is_confirmed = found_.size() > 1 && found_[1] == call.number;
    std::string found =
        is_confirmed && confirmations_ + 1 >= timing_.confirmations ? suspicion_ : std::string();
    try {
      const std::map<int, Wait> waits = waits_around(call, kMostPolled);
      const std::vector<int> path = deadlock_of(waits, rank_);
      if (!path.empty() && !waits.at(path.back()).mismatch.empty()) {
        found = deadlock_text(waits, path);
      }
    } catch (const std::exception&) {  // the store is lost, with rank 0
    }
    lock.lock();
    if (!found.empty() && !calls_.empty()) diagnosis_ = std::move(found);
  }
  check();
}

/// This rank, those that it needs, those that these need, and so on. Of more than kFew that a call
/// needs, those that its ranks have told of stand for the others in the same calls.
std::map<int, Wait> DeadlockDetector::waits_around(const Call& call, std::size_t window) {
  std::map<int, Wait> waits;
  {
    const std::lock_guard lock(mutex_);
    waits[rank_] = described(call);
  }
  const auto to_poll = [this](const Wait& wait) {
    return wait.needs.size() <= kFew ? wait.needs : told_of(wait.label);
  };
  std::vector<int> next = to_poll(waits.at(rank_));
  std::size_t polled = 0;
  while (!next.empty() && polled < kMostPolled) {
    const int rank = next.back();
    next.pop_back();
    if (waits.contains(rank)) continue;
    ++polled;
    if (const auto wait = decode(store_->find(key_of(rank)).value_or(""))) {
      const std::vector<int> more = to_poll(*wait);
      next.insert(next.end(), more.begin(), more.end());
      waits[rank] = *wait;
    }
  }
  if (call.needs.size() > kFew) poll_window(call, window, waits);
  return waits;
}

std::vector<int> DeadlockDetector::told_of(const std::string& label) {
  std::vector<int> ranks;
  for (const std::string& word : split(store_->find(key_of_told(label)).value_or(""), ' ')) {
    if (const auto rank = parse_number<int>(word)) ranks.push_back(*rank);
  }
  return ranks;
}

/// Adds a rank of each call that nobody has told of yet, and tells of it. Ranks that come into the
/// map stay the same from poll to poll, so that a path through them is confirmed.
void DeadlockDetector::poll_window(const Call& call, std::size_t window,
                                   std::map<int, Wait>& waits) {
  const Wait& own = waits.at(rank_);
  const auto stands_in_the_way = [&](int rank, const Wait& wait) {
    return std::ranges::find(call.needs, rank) != call.needs.end() && is_missing(own, wait);
  };
  std::vector<int> known;  // one of each call
  for (const auto& [rank, wait] : waits) {
    if (stands_in_the_way(rank, wait)) known.push_back(rank);
  }
  const std::size_t before = known.size();
  bool some_fellow = false;
  // Fellows begin behind themselves, so that all together poll all.
  const auto after = std::ranges::upper_bound(call.needs, rank_) - call.needs.begin();
  for (std::size_t i = 0; i < std::min(window, call.needs.size()); ++i) {
    const std::size_t place = (static_cast<std::size_t>(after) + next_++) % call.needs.size();
    const int rank = call.needs[place];
    if (waits.contains(rank)) continue;
    const auto wait = decode(store_->find(key_of(rank)).value_or(""));
    if (!wait) continue;
    some_fellow = some_fellow || same_call(own, *wait);
    const auto is_known = [&](int other) { return same_call(waits.at(other), *wait); };
    if (!stands_in_the_way(rank, *wait) || std::ranges::any_of(known, is_known)) continue;
    waits[rank] = *wait;
    known.push_back(rank);
  }
  window_ = some_fellow ? 1 : std::min(2 * window_, kMostPolled);
  if (known.size() == before || known.size() > kMostTold) return;
  store_->set(key_of_told(call.label), fmt::format("{}", fmt::join(known, " ")));
}

void DeadlockDetector::judge(const Call& call, const std::map<int, Wait>& waits) {
  const std::vector<int> path = deadlock_of(waits, rank_);
  std::vector<std::int64_t> found;
  for (const int rank : path) {
    found.push_back(rank);
    found.push_back(waits.at(rank).number);
  }
  confirmations_ = found == found_ ? confirmations_ + 1 : 1;
  found_ = std::move(found);
  suspicion_ = path.empty() ? std::string() : deadlock_text(waits, path);
  if (path.empty()) return;
  // A rank that goes on could be seen between two calls; one that is final could not.
  if (!is_final(waits.at(path.back())) && confirmations_ < timing_.confirmations) return;
  const std::lock_guard lock(mutex_);
  if (calls_.empty() || calls_.back().number != call.number) return;
  diagnosis_ = suspicion_;
  SMP_LOG(error, "{}", diagnosis_);  // not every wait can be ended
}

}  // namespace smp::session
