// SPDX-License-Identifier: Apache-2.0
// The network to other hosts, and the variables that choose it.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "smp_runtime/transport/fabric/fabric_endpoint.h"

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

}  // namespace smp::transport
