// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/api/c10d_groups.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/smddp/backend/smddp_backend.h"

namespace smp::api {

session::MakeGroup group_maker(session::StorePtr store, int rank) {
  return [store = std::move(store), rank](const session::GroupRequest& request) {
    SMP_CHECK(request.backend == "smddp", "no backend {} without Python", request.backend);
    const auto found = std::ranges::find(request.ranks, rank);
    SMP_CHECK(found != request.ranks.end(), "rank {} makes a group of others", rank);
    const int mine = static_cast<int>(found - request.ranks.begin());
    const int size = static_cast<int>(request.ranks.size());
    const std::vector<std::int64_t> global(request.ranks.begin(), request.ranks.end());
    const auto own = c10::make_intrusive<c10d::PrefixStore>(request.name, store);
    auto backend =
        c10::make_intrusive<smddp::SmddpBackend>(own, mine, size, request.timeout, global);
    auto group = c10::make_intrusive<c10d::ProcessGroup>(own, mine, size);
    constexpr auto kOurs = c10d::ProcessGroup::BackendType::CUSTOM;
    group->setDefaultBackend(kOurs);
    for (const c10::DeviceType device : {c10::DeviceType::CPU, c10::DeviceType::CUDA}) {
      group->setBackend(device, kOurs, c10::intrusive_ptr<c10d::Backend>(backend));
    }
    group->setGroupName(request.name);
    group->setGroupDesc(request.description);
    c10d::register_process_group(request.name, group);
    return group;
  };
}

}  // namespace smp::api
