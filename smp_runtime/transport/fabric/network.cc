// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/network.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"
#include "smp_runtime/core/variables.h"
#include "smp_runtime/transport/host_identity.h"
#include "smp_runtime/transport/store_gather.h"

namespace smp::transport {
namespace {

/// Provider that FI_PROVIDER chooses; none where it excludes ("^udp") or lists several, since
/// libfabric chooses then.
std::string provider_of(const std::string& filter) {
  return filter.find_first_of("^,") == std::string::npos ? filter : "";
}

/// The parts of a card: the detector's address, the provider, the link's address, which may hold
/// any bytes and so comes last.
struct Card {
  std::string detector;
  std::string provider;
  std::string link;

  static Card of(const std::string& text) {
    const size_t first = text.find('\n');
    const size_t second = text.find('\n', first + 1);
    return {.detector = text.substr(0, first),
            .provider = text.substr(first + 1, second - first - 1),
            .link = text.substr(second + 1)};
  }
};

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

FabricSettings settings_between(KeyValueStore& store, const HostPlace& place,
                                const Network& network, const WaitLimit& limit) {
  const std::string mine = network_identity();
  const std::vector<std::string> own = network_addresses(network.interface, network.master);
  const StoreGather hosts{.store = store, .rank = place.host, .size = place.hosts, .limit = limit};
  const std::vector<std::string> told =
      place.local == 0
          ? hosts.gather("addresses", fmt::format("{}\n{}", mine, fmt::join(own, "\n")))
          : hosts.gathered("addresses");
  std::set<std::string> of_others;
  for (int host = 0; host < place.hosts; ++host) {
    if (host == place.host) continue;
    const std::vector<std::string> lines = split(told[static_cast<size_t>(host)], '\n');
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

std::string fabric_card(const FabricLink& link, const FailureDetector& detector) {
  return fmt::format("{}\n{}\n", detector.address(), link.provider()) + link.address();
}

FailureDetector::Peer FabricPeer::watched() const {
  const std::string address = Card::of(card).detector;
  return {.rank = rank,
          .name = fmt::format("{} (at {})", name, DetectorAddress::parse(address).host),
          .address = address};
}

void FabricPeer::connect(FabricLink& link, const std::string& own) const {
  const Card theirs = Card::of(card);
  if (theirs.provider != link.provider()) {
    throw ConfigError(
        "{} has libfabric's provider {}, {} has {}; set SMDDP_FABRIC_PROVIDER alike on all hosts",
        own, link.provider(), name, theirs.provider);
  }
  link.connect(rank, name, theirs.link);
}

}  // namespace smp::transport
