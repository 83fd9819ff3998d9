// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/session.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/session/group_failure.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::session {
namespace {

const std::string kEndedWell = "ended well";  // set by the first rank that leaves so

StorePtr within(const char* name, int number, const StorePtr& root) {
  return c10::make_intrusive<c10d::PrefixStore>(fmt::format("{}/{}", name, number + 1), root);
}

}  // namespace

Session::Session(SessionRequest request)
    : config_(std::move(request.config)),
      options_(std::move(request.options)),
      number_(request.number),
      ranks_(request.world ? cluster::ranks_in_world(request.world->first, request.world->second,
                                                     request.variables)
                           : cluster::launch_ranks(request.variables)),
      root_(std::move(request.store)) {
  // Before anybody is waited for.
  topology::validate_world(config_, ranks_.size, ranks_.local_size.value_or(ranks_.size));
  if (!root_) {
    std::optional<int> port;
    if (config_.ddp_port) port = static_cast<int>(*config_.ddp_port);
    OpenedStore opened = open_store(
        ranks_,
        {.variables = request.variables, .hosts = options_.hosts, .port = port, .number = number_},
        options_.secret, request.find_mpi, options_.timeout);
    root_ = std::move(opened.store);
    server_ = std::move(opened.server);
  } else if (ranks_.size > 1) {
    root_ = agreed_store(root_, ranks_.rank, options_.secret);
  }
  store_ = within("smp", number_, root_);
  store_->setTimeout(options_.timeout);
  asking_store(ranks_.rank, [&] { complete_locality(); });
  require_secret();
  compare_settings();
  open_log();
  open_recorder();
  mesh_ = topology::Mesh::make(config_, ranks_.size);
  std::shared_ptr<DeadlockDetector> watch;
  if (ranks_.size == 1) {
    side_store_ = store_;
  } else {
    side_store_ = own_connection(store_);
    side_store_->setTimeout(std::chrono::seconds(10));
    watch = std::make_shared<DeadlockDetector>(std::make_shared<C10dStore>(side_store_),
                                               ranks_.rank, std::move(request.script_line));
  }
  barriers_ = std::make_unique<StoreBarriers>(store_, ranks_.rank, ranks_.size, options_.timeout,
                                              std::move(watch));
}

StorePtr Session::world_store() const { return within("c10d", number_, root_); }

/// Counts ranks by host where the launcher did not say who shares one.
void Session::complete_locality() {
  store_->set(fmt::format("host/{}", ranks_.rank), transport::host_identity());
  if (ranks_.local_rank && ranks_.local_size) return;
  std::vector<int> all(static_cast<std::size_t>(ranks_.size));
  std::iota(all.begin(), all.end(), 0);
  const topology::GroupLayout layout = layout_of(all);
  ranks_.local_rank = layout.my_local();
  ranks_.local_size =
      static_cast<int>(layout.ranks_on[static_cast<std::size_t>(layout.my_host())].size());
}

topology::GroupLayout Session::layout_of(const std::vector<int>& ranks) const {
  return asking_store(ranks_.rank, [&] {
    std::vector<std::string> keys;
    for (const int rank : ranks) keys.push_back(fmt::format("host/{}", rank));
    std::vector<std::string> hosts;
    for (const std::vector<std::uint8_t>& host : store_->multiGet(keys)) {
      hosts.emplace_back(host.begin(), host.end());
    }
    const auto mine = std::ranges::find(ranks, ranks_.rank) - ranks.begin();
    return topology::GroupLayout::from(hosts, static_cast<int>(mine));
  });
}

std::string Session::told_by_first(const std::string& key, const std::string& own) {
  return asking_store(ranks_.rank, [&] {
    if (ranks_.rank == 0) store_->set(key, own);
    return store_->get_to_str(key);
  });
}

void Session::require_secret() const {
  if (!options_.needs_secret || secret_of(*root_) || ranks_.local_size == ranks_.size) return;
  throw ConfigError(
      "SM_LAUNCH_AUTH is require, and this job of {} ranks on several hosts has no secret; set {} "
      "on all of them to the same output of: head -c32 /dev/urandom | base64 -w0",
      ranks_.size, kSecretVariable);
}

/// Ranks with different settings would wait for each other for ever.
void Session::compare_settings() {
  const std::string own = config_.as_json();
  const std::vector<std::string> different =
      topology::differences(own, told_by_first("settings", own));
  if (different.empty()) return;
  throw ConfigError("rank {} and rank 0 have different settings: {}", ranks_.rank,
                    fmt::join(different, ", "));
}

void Session::open_recorder() {
  if (options_.record_folder.empty() && options_.trace_folder.empty()) return;
  const std::string host = host_name();
  record::RecorderOptions files{
      .rank = ranks_.rank, .first_rank = ranks_.rank - ranks_.local_rank.value_or(0), .host = host};
  if (!options_.record_folder.empty()) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    files.job = told_by_first("job", fmt::format("{}-{}", host, now.count()));
    files.record_file =
        (std::filesystem::path(options_.record_folder) / fmt::format("rank-{}.jsonl", ranks_.rank))
            .string();
  }
  if (!options_.trace_folder.empty()) {
    const std::filesystem::path folder(options_.trace_folder);
    const auto file = folder / fmt::format("trace-{}.json", host);
    files.timeline_file = file.string();
    if (ranks_.local_rank == 0) {  // made anew by the host's first rank
      std::error_code failed;
      std::filesystem::create_directories(folder, failed);
      if (!failed) std::filesystem::remove(file, failed);
      if (failed) {
        throw ConfigError("SMP_TRACE: {} cannot be written: {}", file.string(), failed.message());
      }
    }
  }
  recorder_ = std::make_shared<record::Recorder>(std::move(files));
}

void Session::open_log() {
  const auto advice = topology::validate_world(config_, ranks_.size, ranks_.local_size.value_or(1));
  log::configure("smp", options_.log_level,
                 ranks_.size == 1 ? "" : fmt::format("[rank {}] ", ranks_.rank));
  if (ranks_.rank != 0) return;
  if (secret_of(*root_) != nullptr) {
    SMP_LOG(info, "ranks are authenticated by the job's secret");
  } else if (ranks_.size > 1) {
    SMP_LOG(info,
            "trusted network: whoever reaches the ports of this job can take part in it; set {}, "
            "the same on all ranks, to keep others out",
            kSecretVariable);
  }
  for (const auto* lines : {&options_.warnings, &config_.warnings, &advice}) {
    for (const std::string& line : *lines) SMP_LOG(warning, "{}", line);
  }
}

void Session::open_groups(GroupBackends backends, MakeGroup make) {
  groups_ =
      std::make_unique<Groups>(*mesh_, *barriers_, number_, std::move(backends), std::move(make));
  std::optional<MacKey> codes;
  if (const JobSecret* const secret = secret_of(*root_)) {
    // A key of this session alone: what an earlier one has sent is of no use for it.
    codes.emplace(*secret, "objects " + told_by_first("session", fresh_nonce()));
  }
  objects_ = std::make_unique<ObjectExchange>(*barriers_, *groups_, codes);
  groups_->cpu_group(topology::Group::kWorld);
  if (!config_.ddp) return;
  for (const topology::Group kind : topology::kGroups) groups_->user_group(kind);
}

void Session::all_reduce(const std::string& what, at::Tensor& tensor, c10d::ProcessGroup& group,
                         c10d::ReduceOp::RedOpType operation) {
  DeadlockDetector* const watch = barriers_->watch().get();
  const WaitingCall call = group_call(group, what, watch);
  const auto start = [&] {
    std::vector<at::Tensor> tensors{tensor};
    return group.allreduce(tensors, {.reduceOp = c10d::ReduceOp(operation)});
  };
  const auto work = translate_c10d_errors(group, what, start, Uneven::kNever);
  await(group, what, *work, tensor.device().type(), Uneven::kNever, watch);
}

void Session::leave(bool failed, bool serves) {
  if (ranks_.size == 1) return;
  if (const auto& watch = barriers_->watch()) watch->leave();
  try {
    if (!failed) store_->set(kEndedWell, std::string());
    if (ranks_.rank != 0) {
      store_->set(fmt::format("left/{}", ranks_.rank), std::string());
    } else if (serves && !failed) {
      std::vector<std::string> others;
      for (int rank = 1; rank < ranks_.size; ++rank) others.push_back(fmt::format("left/{}", rank));
      store_->wait(others, options_.timeout);
    }
  } catch (const std::exception& error) {
    throw HostError("the job ended before all ranks had left: {}",
                    transport::first_line(error.what()));
  }
}

bool Session::some_rank_ended_well() const {
  return asking_store(ranks_.rank, [&] { return store_->check({kEndedWell}); });
}

}  // namespace smp::session
