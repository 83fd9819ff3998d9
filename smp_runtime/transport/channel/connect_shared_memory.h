// SPDX-License-Identifier: Apache-2.0
// Finds the members of a group that are on one host, and connects them by rings.
#pragma once

#include <memory>
#include <vector>

#include "smp_runtime/transport/channel/message_channel.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {

/// By rank: a channel of shared memory, null where there is none: this rank, ranks of
/// other hosts, and those of this host whose memory one of the two may not open. Collective; throws
/// HostError if a member does not come in time.
[[nodiscard]] std::vector<std::unique_ptr<MessageChannel>> connect_shared_memory(
    const StoreGather& group);

}  // namespace smp::transport
