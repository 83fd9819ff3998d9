// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/group_failure.h"

#include <chrono>
#include <regex>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "smp_runtime/transport/nccl/nccl_advice.h"

namespace smp::session {
namespace {

// Keys of the group's store; a rank's number in the group follows.
constexpr std::string_view kJobRank = "smp/job_rank/";  ///< its number in the job
constexpr std::string_view kFailed = "smp/failed/";     ///< it has seen the group fail
const std::string kAnyFailed = "smp/failed";            ///< some rank has
constexpr std::chrono::milliseconds kAnswer{3000};
constexpr std::chrono::milliseconds kLook{1000};

std::string key_of(std::string_view kind, int rank) { return fmt::format("{}{}", kind, rank); }

/// The rank of the job that smddp says has left the group: it knows at once, so that the others
/// need not be asked. Empty if it says something else.
std::vector<int> rank_that_left(std::string_view text) {
  static const std::regex left("rank ([0-9]+) has ");
  std::match_results<std::string_view::const_iterator> found;
  if (!std::regex_search(text.begin(), text.end(), found, left)) return {};
  return {std::stoi(found[1].str())};
}

std::string named(const std::vector<int>& silent) {
  if (silent.empty()) return "one of them has";
  return silent.size() == 1 ? fmt::format("rank {} has", silent[0])
                            : fmt::format("ranks {} have", fmt::join(silent, ", "));
}

std::string_view advice_on(Uneven batches) {
  if (batches == Uneven::kMayJoin) {
    return "drop the last ones (drop_last=True) or train inside model.join()";
  }
  return "give all ranks the same number of batches, for example by drop_last=True in the "
         "DataLoader";
}

}  // namespace

void leave_job_rank(c10d::ProcessGroup& group, int job_rank) {
  group.getStore()->set(key_of(kJobRank, group.getRank()), std::to_string(job_rank));
}

void tell_failure(c10d::ProcessGroup& group) {
  try {
    const auto store = group.getStore();
    store->set(key_of(kFailed, group.getRank()), std::string());
    store->set(kAnyFailed, std::string());
  } catch (const std::exception&) {  // the store is lost: nobody is there to be told
  }
}

bool has_failed(const c10d::ProcessGroup& group) {
  try {
    return group.getStore()->check({kAnyFailed});
  } catch (const std::exception&) {
    return true;
  }
}

std::vector<int> silent_ranks(c10d::ProcessGroup& group) {
  try {
    const auto store = group.getStore();
    std::vector<std::string> signs;
    for (int rank = 0; rank < group.getSize(); ++rank) signs.push_back(key_of(kFailed, rank));
    try {
      store->wait(signs, kAnswer);
      return {};
    } catch (const std::exception&) {  // what a deadline looks like depends on the kind of store
    }
    std::vector<int> silent;
    for (int rank = 0; rank < group.getSize(); ++rank) {
      if (store->check({key_of(kFailed, rank)})) continue;
      silent.push_back(std::stoi(store->get_to_str(key_of(kJobRank, rank))));
    }
    return silent;
  } catch (const std::exception&) {
    return {};
  }
}

HostError group_failure(c10d::ProcessGroup& group, std::string_view what, std::string_view text,
                        Uneven advice) {
  // Where NCCL's words and ours behind them say what it is, it is no lack of batches.
  if (const auto cure = transport::nccl_advice(text); !cure.empty()) {
    return HostError("{} over {} of the job failed: {}{}", what, group.getGroupDesc(), text, cure);
  }
  std::vector<int> silent;
  if (text.find("smddp: ") != std::string_view::npos) {
    silent = rank_that_left(text);
    if (silent.empty()) {
      return HostError(
          "{} over {} of the job failed: {}; where ranks have fewer batches than others, {}", what,
          group.getGroupDesc(), text, advice_on(advice));
    }
  } else if (text.find("NCCL") == std::string_view::npos) {
    // NCCL fails on one rank while the others wait: they have no answer to give.
    tell_failure(group);
    silent = silent_ranks(group);
  }
  return HostError(
      "{} over {} of the job failed: {} ended or not answered; if one said why, that is the cause; "
      "where ranks have fewer batches than others, {} ({})",
      what, group.getGroupDesc(), named(silent), advice_on(advice), text);
}

void await(c10d::ProcessGroup& group, std::string_view what, c10d::Work& work,
           c10::DeviceType device, Uneven advice, session::WaitWatch* watch) {
  const auto wait = [&] {
    if (!is_gloo(group, device)) {
      work.wait();
      return;
    }
    wait_looking(work, kLook, [&] {
      if (has_failed(group)) {
        throw group_failure(group, what, "another rank has seen it fail", advice);
      }
      if (watch) watch->check();
    });
  };
  naming_group(group, what, wait, advice);
}

}  // namespace smp::session
