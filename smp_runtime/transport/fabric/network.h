// SPDX-License-Identifier: Apache-2.0
// The network to other hosts, and the variables that choose it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "smp_runtime/transport/fabric/fabric_endpoint.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

struct Network {
  FabricSettings fabric;
  std::string interface;  ///< name of the one to use; empty: see network_address()
  std::string master;     ///< where the job's store is; may be empty
};

/// From SMDDP_FABRIC_PROVIDER, else FI_PROVIDER; SMDDP_INTERFACE; MASTER_ADDR. `value_of` gives a
/// variable's value, empty where it is unset.
[[nodiscard]] Network make_network(const std::function<std::string(std::string_view)>& value_of);
/// From the environment.
[[nodiscard]] Network read_network();

/// Settings of an endpoint on `network`: with the address at which other hosts reach this one, see
/// network_address(), and the `card`-th of several network cards.
[[nodiscard]] FabricSettings fabric_settings(const Network& network, int card);

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
