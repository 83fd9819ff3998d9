// SPDX-License-Identifier: Apache-2.0
// Opens one shared segment on each host of a group; what goes between hosts is connected elsewhere
// (inter_node.h).
#pragma once

#include <memory>
#include <span>

#include "smp_runtime/smddp/collectives/communicator.h"
#include "smp_runtime/topology/group_layout.h"
#include "smp_runtime/transport/meeting.h"
#include "smp_runtime/transport/shared_segment.h"

namespace smp::collectives {

/// Sizes of the segment of this rank's host. Pure.
[[nodiscard]] transport::SegmentShape segment_shape(const topology::GroupLayout& layout,
                                                    const Tuning& tuning);

/// The segment of this rank's host, joined. Collective among those that met. Throws ConfigError if
/// ranks differ in sizes, HostError when the limit passes or another rank fails.
std::unique_ptr<transport::SharedSegment> segment_of(transport::Meeting& meeting,
                                                     const topology::GroupLayout& layout,
                                                     std::span<const int> names,
                                                     const Tuning& tuning,
                                                     const transport::WaitLimit& limit);

}  // namespace smp::collectives
