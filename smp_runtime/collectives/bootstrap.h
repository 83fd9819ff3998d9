// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group find out who shares a host, and open one segment on each.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "smp_runtime/collectives/communicator.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/key_value_store.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

/// Both are collective and throw HostError when the limit passes.
topology::GroupLayout layout_of(transport::KeyValueStore& store, int rank, int size,
                                const std::string& host, const transport::WaitLimit& limit);

/// The segment of this rank's host, joined. Throws ConfigError if the host's ranks differ in sizes.
std::unique_ptr<transport::SharedSegment> segment_of(transport::KeyValueStore& store,
                                                     const topology::GroupLayout& layout,
                                                     std::span<const int> names,
                                                     const Tuning& tuning,
                                                     const transport::WaitLimit& limit);

}  // namespace smp::collectives
