// SPDX-License-Identifier: Apache-2.0
// Addresses at which hosts reach each other.
#pragma once

#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

/// A rank's place among the hosts of its group.
struct HostPlace {
  int host = 0;
  int hosts = 1;
  int local = 0;  ///< among the ranks of its host: card number, and the first speaks for it
};

/// Settings of an endpoint on `network`: as fabric_settings(), at the first address of
/// network_addresses() that no host of another network has. A bridge for containers, for one, has
/// the same address on every host. Collective. Throws ConfigError, naming SMDDP_INTERFACE, where
/// none is left, and HostError when the limit passes.
[[nodiscard]] FabricSettings settings_between(KeyValueStore& store, const HostPlace& place,
                                              const Network& network, const WaitLimit& limit);

}  // namespace smp::transport
