// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/session/groups.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fnv1a.h"
#include "smp_runtime/session/group_failure.h"

namespace smp::session {

Groups::Groups(const topology::Mesh& mesh, StoreBarriers& barriers, int number,
               GroupBackends backends, MakeGroup make)
    : barriers_(barriers), number_(number), backends_(std::move(backends)), make_(std::move(make)) {
  for (const topology::Group kind : topology::kGroups) {
    ranks_.emplace(kind, mesh.group(kind, barriers.rank()));
  }
}

const std::vector<int>& Groups::ranks(topology::Group kind) const { return ranks_.at(kind); }

int Groups::index(topology::Group kind) const {
  const std::vector<int>& all = ranks(kind);
  return static_cast<int>(std::ranges::find(all, barriers_.rank()) - all.begin());
}

GroupPtr Groups::user_group(topology::Group kind) {
  return made_for("user", ranks(kind), backends_.tensors);
}

GroupPtr Groups::internal_group(topology::Group kind) {
  return made_for("internal", ranks(kind), backends_.tensors);
}

GroupPtr Groups::cpu_group(topology::Group kind) {
  return made_for("cpu", ranks(kind), backends_.cpu);
}

GroupPtr Groups::group_of(const std::string& label, const std::vector<int>& ranks, bool by_host) {
  return made_for(label, ranks,
                  by_host && shares_by_host() ? backends_.by_host : backends_.tensors);
}

GroupPtr Groups::cpu_group_of(const std::string& label, const std::vector<int>& ranks) {
  return made_for(label, ranks, backends_.cpu);
}

StorePtr Groups::new_store(topology::Group kind, const std::string& label) {
  return c10::make_intrusive<c10d::PrefixStore>(await_members(label, ranks(kind)),
                                                barriers_.store());
}

GroupPtr Groups::made_for(const std::string& label, const std::vector<int>& ranks,
                          const std::string& backend) {
  std::pair key(label, ranks);
  const auto found = made_.find(key);
  if (found != made_.end()) return found->second;
  GroupPtr group = make(label, ranks, backend);
  made_.emplace(std::move(key), group);
  return group;
}

std::string Groups::await_members(const std::string& label, const std::vector<int>& ranks) {
  const std::uint64_t members = fnv1a(fmt::format("{}", ranks));
  // The wait for the group's members comes first: later waits know no rank by name.
  barriers_.all("a first call over " + described(ranks), fmt::format("group/{}", members), ranks);
  std::string name = fmt::format("smp{}:{}:{:x}", number_, label, members);
  if (const int earlier = names_[name]++; earlier > 0) name += fmt::format(":{}", earlier);
  return name;
}

GroupPtr Groups::make(const std::string& label, const std::vector<int>& ranks,
                      const std::string& backend) {
  std::string name = await_members(label, ranks);
  GroupPtr group = make_({ranks, backend, std::move(name), described(ranks), barriers_.timeout()});
  leave_job_rank(*group, barriers_.rank());
  if (const auto& watch = barriers_.watch()) watch->add_group(group->getGroupName(), ranks);
  return group;
}

}  // namespace smp::session
