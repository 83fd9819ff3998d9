// SPDX-License-Identifier: Apache-2.0
// How the ranks of a group on several hosts connect through libfabric.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/fabric/network.h"

namespace smp::transport {

/// What the channels to other hosts share; null in a group on one. It outlives them.
struct FabricEnds {
  std::unique_ptr<FabricLink> link;
  std::unique_ptr<FailureDetector> detector;
};

/// `channels` by rank of `group`; those that are null get a FabricChannel, but for this rank's own.
/// All ranks have null for the same pairs. Collective; throws ConfigError where there is no
/// provider or hosts have different ones, HostError, or what the backend throws, if a rank does not
/// come.
[[nodiscard]] FabricEnds connect_fabric(c10d::Backend& group, const Network& network,
                                        std::vector<std::unique_ptr<MessageChannel>>& channels,
                                        std::chrono::milliseconds timeout);

}  // namespace smp::transport
