// SPDX-License-Identifier: Apache-2.0
// Connects the ranks of a group: by rings those on one host, through libfabric those on several,
// by NCCL those whose GPUs can reach each other. Each is collective.
#pragma once

#include <memory>
#include <vector>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/nccl/nccl_library.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

/// By rank: a channel of shared memory, null where there is none: this rank, ranks of
/// other hosts, and those of this host whose memory one of the two may not open. Collective; throws
/// HostError if a member does not come in time.
[[nodiscard]] std::vector<std::unique_ptr<MessageChannel>> connect_shared_memory(
    const StoreGather& group);

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

/// NCCL's channels of a process; they use the library, so it goes last.
struct NcclEnds {
  std::unique_ptr<NcclLibrary> library;  ///< null where no pair uses NCCL
  std::vector<std::unique_ptr<MessageChannel>> channels;
};

/// `channels` by rank, null for this rank; those of pairs with a GPU on both sides
/// become NcclChannel. `cuda_device` is -1 without one. Collective, whatever the devices are;
/// throws HostError if a member does not come in time.
[[nodiscard]] NcclEnds connect_nccl(const StoreGather& group,
                                    std::vector<std::unique_ptr<MessageChannel>> channels,
                                    int cuda_device);

}  // namespace smp::transport
