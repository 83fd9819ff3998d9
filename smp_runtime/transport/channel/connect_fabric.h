// SPDX-License-Identifier: Apache-2.0
// Connects the ranks of a group on several hosts through libfabric.
#pragma once

#include <memory>
#include <vector>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

/// Ends that the channels to other hosts share; null in a group on one. They outlive the channels.
struct FabricEnds {
  std::unique_ptr<FabricLink> link;
  std::unique_ptr<FailureDetector> detector;
};

/// `channels` by rank; those that are null get a FabricChannel, but for this rank's own.
/// All ranks have null for the same pairs. Collective; throws ConfigError where there is no
/// provider or hosts have different ones, HostError if a rank does not come.
[[nodiscard]] FabricEnds connect_fabric(const StoreGather& group, const Network& network,
                                        std::vector<std::unique_ptr<MessageChannel>>& channels);

}  // namespace smp::transport
