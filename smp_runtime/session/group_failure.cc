// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/group_failure.h"

#include <chrono>
#include <optional>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/nccl/nccl_advice.h"

namespace smp::session {
namespace {

using std::chrono::milliseconds;

// Keys of the group's store; a rank's number in the group follows.
constexpr std::string_view kJobRank = "smp/job_rank/";  ///< its number in the job
constexpr std::string_view kFailed = "smp/failed/";     ///< it has seen the group fail
const std::string kAnyFailed = "smp/failed";            ///< some rank has
constexpr milliseconds kAnswer{3000};
constexpr milliseconds kCheck{100};
constexpr int kChecksPerPoll = 10;  ///< the store is asked once a second

std::string key_of(std::string_view kind, int rank) { return fmt::format("{}{}", kind, rank); }

int job_rank_of(c10d::ProcessGroup& group, int rank) {
  return std::stoi(group.getStore()->get_to_str(key_of(kJobRank, rank)));
}

std::vector<int> job_ranks_of(c10d::ProcessGroup& group) {
  std::vector<int> ranks;
  for (int rank = 0; rank < group.getSize(); ++rank) ranks.push_back(job_rank_of(group, rank));
  return ranks;
}

/// Tells the other ranks of the group that a collective has failed for this one.
void tell_failure(c10d::ProcessGroup& group) {
  const auto store = group.getStore();
  store->set(key_of(kFailed, group.getRank()), std::string());
  store->set(kAnyFailed, std::string());
}

/// True if some rank has told so; also if the store is lost, with rank 0 or its launcher.
bool has_failed(const c10d::ProcessGroup& group) {
  try {
    return group.getStore()->check({kAnyFailed});
  } catch (const std::exception&) {
    return true;
  }
}

/// Numbers in the job of those ranks that have not told so within 3 s. Each does, once: a group
/// does not outlive its first failure.
std::vector<int> silent_ranks(c10d::ProcessGroup& group) {
  const auto store = group.getStore();
  std::vector<std::string> answers;
  for (int rank = 0; rank < group.getSize(); ++rank) answers.push_back(key_of(kFailed, rank));
  try {
    store->wait(answers, kAnswer);
    return {};
  } catch (const std::exception&) {  // what a deadline looks like depends on the kind of store
  }
  std::vector<int> silent;
  for (int rank = 0; rank < group.getSize(); ++rank) {
    if (!store->check({answers[static_cast<std::size_t>(rank)]})) {
      silent.push_back(job_rank_of(group, rank));
    }
  }
  return silent;
}

/// Time that Gloo has waited, if that is why it failed.
milliseconds time_of_gloo(std::string_view text) {
  static const std::regex waited("Timed out waiting ([0-9]+)ms");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_search(text.begin(), text.end(), found, waited)) return {};
  return milliseconds(std::stoll(found[1].str()));
}

std::string advice_on(Uneven batches) {
  switch (batches) {
    case Uneven::kMayJoin:
      return advised(
          "where ranks have fewer batches than others, drop the last ones (drop_last=True)",
          Advice::kFewerBatches);
    case Uneven::kRefused:
      return "where ranks have fewer batches than others, give all ranks the same number, for "
             "example by drop_last=True in the DataLoader";
    case Uneven::kNever:
      break;
  }
  return {};
}

/// The watch's diagnosis, whose last words are on batches; with the way out that replicas have.
void check(DeadlockDetector& watch, Uneven batches) {
  try {
    watch.check();
  } catch (const CallMismatch& mismatch) {
    if (batches != Uneven::kMayJoin) throw;
    throw CallMismatch("{}", advised(mismatch.what(), Advice::kFewerBatches));
  }
}

/// Label that is equal for calls that meet each other.
std::string label_of(const c10d::ProcessGroup& group, std::string_view what) {
  return fmt::format("{}/{}", what, group.getGroupName());
}

std::string added(std::string_view advice) {
  return advice.empty() ? std::string() : fmt::format("; {}", advice);
}

}  // namespace

void leave_job_rank(c10d::ProcessGroup& group, int job_rank) {
  group.getStore()->set(key_of(kJobRank, group.getRank()), std::to_string(job_rank));
}

std::string described(const std::vector<int>& ranks) {
  constexpr std::size_t kShown = 8;
  if (ranks.size() == 1) return fmt::format("rank {}", ranks[0]);
  if (ranks.size() <= kShown) return fmt::format("ranks {}", fmt::join(ranks, ", "));
  return fmt::format("ranks {}, {}, {}, ..., {}", ranks[0], ranks[1], ranks[2], ranks.back());
}

std::string one_of_others(std::vector<int> ranks, int self) {
  std::erase(ranks, self);
  return (ranks.size() > 1 ? "one of " : "") + described(ranks);
}

WaitTimeout waited_in_vain(std::string_view what, int rank, milliseconds timeout,
                           std::string_view absent, std::string_view group,
                           std::string_view advice) {
  return WaitTimeout(
      "{}: rank {} waited {:g} s for {} of {}; they ended, hang, or do not make the matching call "
      "(SMP_TIMEOUT_SECONDS sets the time){}",
      what, rank, std::chrono::duration<double>(timeout).count(), absent, group, added(advice));
}

HostError lost_connection(std::string_view what, int rank, std::string_view others,
                          std::string_view text, std::string_view advice) {
  return HostError("{}: rank {} lost the connection to {}: {}; see how it ended{}", what, rank,
                   others, transport::first_line(text), added(advice));
}

void fail_group(c10d::ProcessGroup& group, std::string_view what, std::string_view text,
                Uneven batches) {
  const std::string& members = group.getGroupDesc();
  // An error that NCCL's text and our advice explain is no lack of batches.
  if (const auto cure = transport::nccl_advice(text); !cure.empty()) {
    throw HostError("{} over {} of the job failed: {}{}", what, members, text, cure);
  }
  const std::string advice = advice_on(batches);
  // smddp names the rank. NCCL fails on one rank while the others wait: they cannot answer.
  if (text.find("smddp: ") == std::string_view::npos &&
      text.find("NCCL") == std::string_view::npos) {
    try {
      tell_failure(group);
      const std::vector<int> silent = silent_ranks(group);
      const int rank = job_rank_of(group, group.getRank());
      const std::string others =
          silent.empty() ? one_of_others(job_ranks_of(group), rank) : described(silent);
      const milliseconds timeout = time_of_gloo(text);
      if (timeout.count() == 0) throw lost_connection(what, rank, others, text, advice);
      throw waited_in_vain(what, rank, timeout, others, members, advice);
    } catch (const c10::Error&) {  // the store is lost, too, with rank 0 or its launcher
    }
  }
  const std::string said =
      fmt::format("{} over {} of the job failed: {}{}", what, members, text, added(advice));
  const bool is_late = text.find(" ms for rank(s) ") != std::string_view::npos;  // smddp's words
  if (is_late) throw WaitTimeout("{}", said);
  throw HostError("{}", said);
}

WaitingCall group_call(const c10d::ProcessGroup& group, std::string_view what,
                       DeadlockDetector* watch, std::optional<std::int64_t> turn) {
  if (watch == nullptr) return {nullptr, {}, {}, {}};
  return {watch, std::string(what), label_of(group, what), watch->members(group.getGroupName()),
          turn};
}

std::optional<std::int64_t> start_turn(const c10d::ProcessGroup& group, std::string_view what,
                                       DeadlockDetector* watch) {
  return watch ? std::optional(watch->start(label_of(group, what))) : std::nullopt;
}

void await(c10d::ProcessGroup& group, std::string_view what, c10d::Work& work,
           c10::DeviceType device, Uneven advice, DeadlockDetector* watch,
           std::optional<std::int64_t> turn) {
  const std::string backend = group.getBackend(device)->getBackendName();
  int checks = 0;
  const auto poll = [&] {
    if (watch) check(*watch, advice);
    if (++checks % kChecksPerPoll == 0 && backend == "gloo" && has_failed(group)) {
      if (watch) watch->check_failed();
      fail_group(group, what, "another rank has seen it fail", advice);
    }
  };
  const auto wait = [&] {
    if (backend != "gloo" && backend != "smddp") {
      work.wait();  // others may not know of a limit
      return;
    }
    std::optional<WaitingCall> waiting;
    const auto tell = [&] {
      if (turn && !waiting) waiting.emplace(group_call(group, what, watch, turn));
    };
    if (!work.isCompleted()) tell();
    while (true) {
      try {
        work.wait(kCheck);
        return;
      } catch (const std::exception&) {
        if (work.isCompleted()) break;
      }
      poll();
    }
    try {
      work.wait();  // it is done: returns, or throws why it failed
    } catch (const std::exception&) {
      tell();
      if (watch) watch->check_failed();
      throw;
    }
  };
  translate_c10d_errors(group, what, wait, advice);
}

}  // namespace smp::session
