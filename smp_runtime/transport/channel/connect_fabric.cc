// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/connect.h"
#include "smp_runtime/transport/channel/fabric_channel.h"
#include "smp_runtime/transport/fabric/fabric_peers.h"

namespace smp::transport {
namespace {

FabricEnds open_ends(const Network& network, int rank) {
  const FabricSettings settings = fabric_settings(network, rank);
  FabricEnds ends{.link = std::make_unique<FabricLink>(settings)};
  ends.detector = std::make_unique<FailureDetector>(
      settings.address, rank, [link = ends.link.get()](const std::string&) { link->wake(); });
  return ends;
}

std::string name_of(int rank) { return fmt::format("rank {} of the pipeline group", rank); }

}  // namespace

FabricEnds connect_fabric(const StoreGather& group, const Network& network,
                          std::vector<std::unique_ptr<MessageChannel>>& channels) {
  std::vector<int> remote;
  for (int peer = 0; peer < group.size; ++peer) {
    if (peer != group.rank && !channels[static_cast<size_t>(peer)]) remote.push_back(peer);
  }
  if (remote.empty()) return {};
  FabricEnds ends = open_ends(network, group.rank);
  publish_fabric(group.store, group.rank, *ends.link, ends.detector.get());
  std::vector<FailureDetector::Peer> peers;
  for (const int peer : remote) {
    peers.push_back(connect_peer(group.store, *ends.link, name_of(group.rank), peer, name_of(peer),
                                 group.limit));
  }
  ends.detector->connect(peers, group.limit);
  for (const int peer : remote) {
    channels[static_cast<size_t>(peer)] = std::make_unique<FabricChannel>(
        *ends.link, *ends.detector, FabricChannel::Ends{.rank = group.rank, .peer = peer});
  }
  return ends;
}

}  // namespace smp::transport
