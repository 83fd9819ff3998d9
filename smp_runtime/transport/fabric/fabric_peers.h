// SPDX-License-Identifier: Apache-2.0
// Connects links, and failure detectors, of ranks of several hosts.
#pragma once

#include <string>

#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

/// Tells the other ranks of the store's group where this one's link is, and its detector, if it has
/// one.
void publish_fabric(KeyValueStore& store, int rank, const FabricLink& link,
                    const FailureDetector* detector);

/// Connects `link`, of the rank called `own`, to `peer` once that has published. Returns what a
/// detector connects with. Throws ConfigError where the two have different providers, HostError
/// when the limit passes.
[[nodiscard]] FailureDetector::Peer connect_peer(KeyValueStore& store, FabricLink& link,
                                                 const std::string& own, int peer,
                                                 const std::string& name, const WaitLimit& limit);

}  // namespace smp::transport
