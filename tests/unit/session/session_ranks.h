// SPDX-License-Identifier: Apache-2.0
// Ranks of a job as threads of this process: sessions over a store in memory, with groups of smddp.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/session/session.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"
#include "smp_runtime/topology/setting.h"

namespace smp::session {

/// Makes groups of smddp, which c10d does not know by name: all ranks are in this process.
template <typename Backend = smddp::SmddpBackend>
MakeGroup smddp_groups(const StorePtr& store, int rank) {
  return [store, rank](const GroupRequest& request) {
    const auto mine = std::ranges::find(request.ranks, rank) - request.ranks.begin();
    const int size = static_cast<int>(request.ranks.size());
    const std::vector<std::int64_t> names(request.ranks.begin(), request.ranks.end());
    const auto own = c10::make_intrusive<c10d::PrefixStore>(request.name, store);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own, static_cast<int>(mine), size);
    constexpr auto kOurs = c10d::ProcessGroup::BackendType::CUSTOM;
    group->setDefaultBackend(kOurs);
    group->setBackend(c10::DeviceType::CPU, kOurs,
                      c10::intrusive_ptr<c10d::Backend>(c10::make_intrusive<Backend>(
                          own, static_cast<int>(mine), size, request.timeout, names)));
    group->setGroupName(request.name);
    group->setGroupDesc(request.description);
    return group;
  };
}

/// A job whose ranks are threads.
struct ThreadJob {
  int size = 2;
  std::string settings = {};  ///< as mp_parameters
  Variables variables = {{"SMP_TIMEOUT_SECONDS", "20"}};
  int number = 0;  ///< how many sessions each rank had before
  StorePtr store = c10::make_intrusive<c10d::HashStore>();

  [[nodiscard]] SessionRequest request(int rank, std::string_view own_settings = {}) const {
    const std::string_view text = own_settings.empty() ? settings : own_settings;
    return {.config = topology::make_parallel_config(topology::parse_settings(text, "a test")),
            .options = cluster::make_runtime_options(variables),
            .variables = variables,
            .number = number,
            .store = store,
            .world = std::pair(rank, size),
            .find_mpi = {},
            .script_line = {}};
  }

  /// Runs `body` as each rank. Returns what each threw, "" for nothing.
  [[nodiscard]] std::vector<std::string> on_ranks(const std::function<void(int rank)>& body) const {
    std::vector<std::string> errors(static_cast<std::size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          body(rank);
        } catch (const std::exception& error) {
          errors[static_cast<std::size_t>(rank)] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  /// The same with a session each, which has its groups and leaves the job afterwards.
  template <typename Backend = smddp::SmddpBackend>
  [[nodiscard]] std::vector<std::string> in_sessions(
      const std::function<void(Session&)>& body) const {
    return on_ranks([&](int rank) {
      Session session(request(rank));
      session.open_groups({.tensors = "smddp", .cpu = "smddp", .by_host = "smddp"},
                          smddp_groups<Backend>(session.world_store(), rank));
      body(session);
      session.leave(/*failed=*/false, /*serves=*/true);
    });
  }
};

}  // namespace smp::session
