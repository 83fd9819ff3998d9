// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/network.h"

#include <utility>

#include "smp_runtime/core/variables.h"
#include "smp_runtime/transport/fabric/network_address.h"

namespace smp::transport {
namespace {

/// Provider that FI_PROVIDER chooses; none where it excludes ("^udp") or lists several, since
/// libfabric chooses then.
std::string provider_of(const std::string& filter) {
  return filter.find_first_of("^,") == std::string::npos ? filter : "";
}

}  // namespace

Network make_network(const std::function<std::string(std::string_view)>& value_of) {
  std::string provider = value_of("SMDDP_FABRIC_PROVIDER");
  if (provider.empty()) provider = provider_of(value_of("FI_PROVIDER"));
  return {.fabric = {.provider = std::move(provider)},
          .interface = value_of("SMDDP_INTERFACE"),
          .master = value_of("MASTER_ADDR")};
}

Network read_network() {
  const Variables variables = read_variables();
  const VariableSet set({}, variables);
  return make_network([&](std::string_view variable) { return set.text(variable); });
}

FabricSettings fabric_settings(const Network& network, int card) {
  FabricSettings settings = network.fabric;
  settings.address = network_address(network.interface, network.master);
  settings.card = card;
  return settings;
}

}  // namespace smp::transport
