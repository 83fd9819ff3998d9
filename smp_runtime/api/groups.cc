// SPDX-License-Identifier: Apache-2.0
#include "smp/groups.h"

#include "smp_runtime/api/session_core.h"
#include "smp_runtime/core/error.h"

namespace smp {
namespace {

topology::Group kind_of(CommGroup group) {
  switch (group) {
    case CommGroup::kWorld:
      return topology::Group::kWorld;
    case CommGroup::kPp:
      return topology::Group::kPp;
    case CommGroup::kDp:
      return topology::Group::kDp;
  }
  throw ConfigError("smp::CommGroup has no {}", static_cast<int>(group));
}

}  // namespace

std::vector<int> ranks_of(const Session& session, CommGroup group) {
  return session.core()->session().groups().ranks(kind_of(group));
}

c10::intrusive_ptr<c10d::ProcessGroup> process_group(Session& session, CommGroup group) {
  return session.core()->session().groups().user_group(kind_of(group));
}

}  // namespace smp
