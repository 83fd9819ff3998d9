// SPDX-License-Identifier: Apache-2.0
// Finds the members of a group whose GPUs can reach each other, and connects them by NCCL's
// channels.
#pragma once

#include <memory>
#include <vector>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/nccl/nccl_library.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

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
