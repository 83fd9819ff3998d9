// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/store_barriers.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "smp_runtime/session/group_failure.h"

namespace smp::session {
namespace {

using std::chrono::milliseconds;

/// Ranks that wait look this often; what has happened to one is known to all within three times
/// that.
constexpr milliseconds kPoll{1000};
constexpr milliseconds kSigns{3000};

}  // namespace

StoreBarriers::StoreBarriers(StorePtr store, int rank, milliseconds timeout,
                             std::shared_ptr<WaitWatch> watch)
    : store_(std::move(store)), rank_(rank), timeout_(timeout), watch_(std::move(watch)) {}

std::string StoreBarriers::next(const std::string& label) {
  const std::lock_guard lock(mutex_);
  return fmt::format("{}/{}", label, ++calls_[label]);
}

void StoreBarriers::all(const std::string& what, const std::string& label,
                        const std::vector<int>& ranks, std::string_view advice) {
  if (ranks.size() == 1) return;
  const auto size = static_cast<std::int64_t>(ranks.size());
  const std::string key = next(fmt::format("all/{}/{}", label, ranks.front()));
  const WaitingCall waiting(watch_, what, "all/" + label, ranks);
  asking_store(rank_, [&] {
    sign(key);
    const std::string complete = key + "/complete";
    if (store_->add(key + "/came", 1) == size) store_->set(complete, std::string());
    if (!appear({complete}, timeout())) {
      std::vector<int> absent;
      for (const int rank : ranks) {
        if (!store_->check({fmt::format("{}/{}", key, rank)})) absent.push_back(rank);
      }
      throw timed_out(what, absent, ranks, advice);
    }
    if (store_->add(key + "/left", 1) != size) return;
    for (const int rank : ranks) store_->deleteKey(fmt::format("{}/{}", key, rank));
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
  const WaitingCall waiting(watch_, what, key.substr(0, key.rfind('/')), {peer});
  return asking_store(rank_, [&] {
    if (!appear({key}, timeout())) throw timed_out(what, {peer}, {peer, rank_});
    std::string note = store_->get_to_str(key);
    store_->deleteKey(key);
    return note;
  });
}

void StoreBarriers::all_reduce(const std::string& what, at::Tensor& tensor,
                               c10d::ProcessGroup& group, const std::vector<int>& members,
                               c10d::ReduceOp::RedOpType operation) {
  const auto began = Clock::now();
  const std::string place = "reduce/" + group.getGroupName();
  const std::string call = next(place);
  std::vector<at::Tensor> tensors{tensor};
  const auto work = group.allreduce(tensors, {.reduceOp = c10d::ReduceOp(operation)});
  if (tensor.is_cuda()) {
    work->wait();  // on the stream alone; with a limit this thread would wait for the GPU
    return;
  }
  try {
    const WaitingCall waiting(watch_, what, place, members);
    finish(group, *work, call);
  } catch (const CallMismatch&) {
    throw;
  } catch (const std::exception& error) {  // c10d's, and Gloo's own
    const bool in_time = Clock::now() - began < timeout();
    tell_failure(group);
    asking_store(rank_, [&] { sign(call); });
    const std::vector<int> absent = in_time ? silent_ranks(group) : without_sign(call, members);
    if (!absent.empty() && !in_time) throw timed_out(what, absent, members);
    throw lost(what, absent.empty() ? members : absent, transport::error_text(error));
  }
}

void StoreBarriers::finish(c10d::ProcessGroup& group, c10d::Work& work, const std::string& call) {
  const auto sign_at = Clock::now() + timeout() / 2;
  bool signed_up = false;
  wait_looking(work, std::min(kPoll, timeout() / 2), [&] {
    if (watch_) watch_->check();
    if (has_failed(group)) throw HostError("another rank has seen it fail");
    if (signed_up || Clock::now() < sign_at) return;
    asking_store(rank_, [&] { sign(call); });
    signed_up = true;
  });
}

bool StoreBarriers::appear(const std::vector<std::string>& keys, milliseconds limit) {
  // Not the store's own wait(): each deadline of it is a warning of c10d in the log.
  constexpr Clock::duration kShortest = std::chrono::microseconds(50);
  constexpr Clock::duration kLongest = milliseconds(100);
  const auto begin = Clock::now();
  while (!store_->check(keys)) {
    const auto waited = Clock::now() - begin;
    if (waited >= limit) return false;
    if (watch_) watch_->check();
    std::this_thread::sleep_for(std::clamp(waited / 8, kShortest, kLongest));
  }
  return true;
}

void StoreBarriers::sign(const std::string& key) {
  store_->set(fmt::format("{}/{}", key, rank_), std::string());
}

std::vector<int> StoreBarriers::without_sign(const std::string& key,
                                             const std::vector<int>& ranks) {
  return asking_store(rank_, [&] {
    std::vector<std::string> signs;
    for (const int rank : ranks) signs.push_back(fmt::format("{}/{}", key, rank));
    std::vector<int> missing;
    if (appear(signs, kSigns)) return missing;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (!store_->check({signs[i]})) missing.push_back(ranks[i]);
    }
    return missing;
  });
}

HostError StoreBarriers::lost(std::string_view what, const std::vector<int>& peers,
                              std::string_view text) const {
  std::vector<int> others = peers;
  std::erase(others, rank_);
  std::ranges::sort(others);
  return HostError("{}: rank {} lost the connection to {} {}: {}", what, rank_,
                   others.size() == 1 ? "rank" : "one of ranks", fmt::join(others, ", "),
                   transport::first_line(text));
}

WaitTimeout StoreBarriers::timed_out(std::string_view what, const std::vector<int>& absent,
                                     std::vector<int> ranks, std::string_view advice) const {
  std::ranges::sort(ranks);
  return WaitTimeout(
      "{}: rank {} waited {:g} s for {} {} of {}; they ended, hang, or do not make the matching "
      "call (SMP_TIMEOUT_SECONDS sets the time){}{}",
      what, rank_, std::chrono::duration<double>(timeout()).count(),
      absent.size() == 1 ? "rank" : "ranks", fmt::join(absent, ", "), ranks,
      advice.empty() ? "" : "; ", advice);
}

}  // namespace smp::session
