// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/fabric_peers.h"

#include "smp_runtime/core/error.h"

namespace smp::transport {
namespace {

std::string key_of(int rank) { return fmt::format("fabric/{}", rank); }

}  // namespace

void publish_fabric(KeyValueStore& store, int rank, const FabricLink& link,
                    const FailureDetector* detector) {
  // The link's address comes last: it may hold any bytes.
  store.set(key_of(rank), fmt::format("{}\n{}\n", detector == nullptr ? "" : detector->address(),
                                      link.provider()) +
                              link.address());
}

FailureDetector::Peer connect_peer(KeyValueStore& store, FabricLink& link, const std::string& own,
                                   int peer, const std::string& name, const WaitLimit& limit) {
  const std::string told = store.get(key_of(peer), limit);
  const size_t first = told.find('\n');
  const size_t second = told.find('\n', first + 1);
  const std::string detector = told.substr(0, first);
  const std::string provider = told.substr(first + 1, second - first - 1);
  if (provider != link.provider()) {
    throw ConfigError(
        "{} has libfabric's provider {}, {} has {}; set SMDDP_FABRIC_PROVIDER alike on all hosts",
        own, link.provider(), name, provider);
  }
  link.connect(peer, name, told.substr(second + 1));
  return {.rank = peer,
          .name = fmt::format("{} (at {})", name, detector.substr(0, detector.find(' '))),
          .address = detector};
}

}  // namespace smp::transport
