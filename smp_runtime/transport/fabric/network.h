// SPDX-License-Identifier: Apache-2.0
// The network to other hosts: the variables that choose it, the addresses at which this host is
// reached, and the connections of links and failure detectors over it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/transport/fabric/fabric_endpoint.h"
#include "smp_runtime/transport/fabric/fabric_link.h"
#include "smp_runtime/transport/fabric/failure_detector.h"
#include "smp_runtime/transport/key_value_store.h"

namespace smp::transport {

/// Numeric addresses at which other hosts may reach this one, the likeliest first: of the interface
/// that is named; without a name, of the one that leads to `peer` (a host name, may be empty), then
/// of the default route, then of all that are up and no loopback. IPv4 before IPv6.
/// Throws ConfigError, with the interfaces there are, if nothing fits, and HostError.
std::vector<std::string> network_addresses(const std::string& interface, const std::string& peer);
/// The first of them.
std::string network_address(const std::string& interface, const std::string& peer);

/// This host's interfaces with their addresses, for messages. Throws HostError.
std::vector<std::string> interface_texts();

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

/// What other ranks of the group need to know of this one's link and detector.
[[nodiscard]] std::string fabric_card(const FabricLink& link, const FailureDetector& detector);

/// A rank whose card somebody else has.
struct FabricPeer {
  int rank;
  std::string name;  ///< for messages
  std::string card;

  /// What a detector connects with.
  [[nodiscard]] FailureDetector::Peer watched() const;
  /// Connects `link`, of the rank called `own`, to it. Throws ConfigError where the two have
  /// different providers.
  void connect(FabricLink& link, const std::string& own) const;
};

}  // namespace smp::transport
