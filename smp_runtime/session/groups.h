// SPDX-License-Identifier: Apache-2.0
// The groups of one rank, and the c10d groups that belong to them, made by whoever opens the
// session: Python says of which backend.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <c10/util/intrusive_ptr.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "smp_runtime/session/store_barriers.h"
#include "smp_runtime/topology/mesh.h"

namespace smp::session {

using GroupPtr = c10::intrusive_ptr<c10d::ProcessGroup>;

/// Names of the c10d backends that carry the groups of each purpose.
struct GroupBackends {
  std::string tensors;  ///< of tensors on the model's device
  std::string cpu;      ///< of what lies on the CPU
  std::string by_host;  ///< of shared state, if one is to cross between hosts once; may be empty
};

struct GroupRequest {
  std::vector<int> ranks;  ///< of the job, ascending; this one among them
  std::string backend;
  std::string name;         ///< the same on its ranks, of no other group of the job
  std::string description;  ///< "ranks 0, 2, 4", for errors
  std::chrono::milliseconds timeout;
};
/// Makes a c10d group; collective over its ranks, which all have come. What makes them knows the
/// backends: make_group() of _ranks/groups.py in Python, group_maker() of api/session.cc in C++.
using MakeGroup = std::function<GroupPtr(const GroupRequest&)>;

/// Groups with the same ranks and purpose share one c10d group, which is made on first use by its
/// members, who come here in the same order on every rank: what asks for a group is collective over
/// it. One thread at a time.
class Groups {
 public:
  /// `number`: of the session in this process; its groups' names differ from those of others.
  Groups(const topology::Mesh& mesh, StoreBarriers& barriers, int number, GroupBackends backends,
         MakeGroup make);

  /// Global ranks of this rank's group, ascending.
  [[nodiscard]] const std::vector<int>& ranks(topology::Group kind) const;
  /// This rank's number within its group.
  [[nodiscard]] int index(topology::Group kind) const;

  /// The group that scripts get; only they put operations on it.
  GroupPtr user_group(topology::Group kind);
  /// For tensors of the model, on its device.
  GroupPtr internal_group(topology::Group kind);
  /// For objects and flags, on the CPU.
  GroupPtr cpu_group(topology::Group kind);
  /// A group of our own, of any ranks, for the purpose that `label` names; `by_host`: for shared
  /// state.
  GroupPtr group_of(const std::string& label, const std::vector<int>& ranks, bool by_host);
  GroupPtr cpu_group_of(const std::string& label, const std::vector<int>& ranks);
  /// A part of the job's store that its ranks alone use, and for one thing: `label`. All have come.
  StorePtr new_store(topology::Group kind, const std::string& label);
  /// True if groups for shared state cross between hosts once.
  [[nodiscard]] bool shares_by_host() const { return !backends_.by_host.empty(); }

 private:
  GroupPtr made_for(const std::string& label, const std::vector<int>& ranks,
                    const std::string& backend);
  GroupPtr make(const std::string& label, const std::vector<int>& ranks,
                const std::string& backend);
  /// Waits for `ranks`; a name that nothing else of theirs has.
  std::string await_members(const std::string& label, const std::vector<int>& ranks);

  StoreBarriers& barriers_;
  const int number_;
  const GroupBackends backends_;
  const MakeGroup make_;
  std::map<topology::Group, std::vector<int>> ranks_;
  std::map<std::pair<std::string, std::vector<int>>, GroupPtr> made_;  ///< by label and ranks
  std::map<std::string, int> names_;  ///< how often each was asked for
};

}  // namespace smp::session
