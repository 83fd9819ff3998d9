// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/host_addresses.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/split.h"
#include "smp_runtime/transport/fabric/network_address.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::transport {

FabricSettings settings_between(KeyValueStore& store, const HostPlace& place,
                                const Network& network, const WaitLimit& limit) {
  const auto key = [](int host) { return fmt::format("addresses/{}", host); };
  const std::string mine = network_identity();
  const std::vector<std::string> own = network_addresses(network.interface, network.master);
  if (place.local == 0) {
    store.set(key(place.host), fmt::format("{}\n{}", mine, fmt::join(own, "\n")));
  }
  std::set<std::string> of_others;
  for (int host = 0; host < place.hosts; ++host) {
    if (host == place.host) continue;
    const std::vector<std::string> lines = split(store.get(key(host), limit), '\n');
    // Containers on one network share its addresses, and reach each other at them.
    if (lines.front() != mine) of_others.insert(lines.begin() + 1, lines.end());
  }
  const auto found =
      std::ranges::find_if(own, [&](const auto& one) { return !of_others.contains(one); });
  if (found == own.end()) {
    throw ConfigError(
        "another host of the group has the address {}, too, so that this one cannot be reached at "
        "it; set SMDDP_INTERFACE to the interface that leads to the other hosts; there are: {}",
        fmt::join(own, ", "), fmt::join(interface_texts(), ", "));
  }
  FabricSettings settings = network.fabric;
  settings.address = *found;
  settings.card = place.local;
  return settings;
}

}  // namespace smp::transport
