// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/connect_fabric.h"

#include <array>
#include <cstring>
#include <string>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/fixed_text.h"
#include "smp_runtime/transport/channel/fabric_channel.h"
#include "smp_runtime/transport/channel/peer_info.h"

namespace smp::transport {
namespace {

/// What a rank tells of itself; without a provider it has no peer on another host.
struct FabricInfo {
  std::array<char, 64> provider{};
  std::array<char, 128> detector{};  ///< address of its failure detector
  std::array<char, 512> address{};   ///< of its link: any bytes
  uint32_t address_bytes = 0;
};

FabricInfo describe(const FabricEnds& ends) {
  FabricInfo info;
  if (!ends.link) return info;
  put(info.provider, ends.link->provider());
  put(info.detector, ends.detector->address());
  const std::string address = ends.link->address();
  SMP_CHECK(address.size() <= info.address.size(), "an address of {} bytes", address.size());
  std::memcpy(info.address.data(), address.data(), address.size());
  info.address_bytes = static_cast<uint32_t>(address.size());
  return info;
}

FabricEnds open_ends(const Network& network, int rank) {
  const FabricSettings settings = fabric_settings(network, rank);
  FabricEnds ends{.link = std::make_unique<FabricLink>(settings)};
  ends.detector = std::make_unique<FailureDetector>(
      settings.address, rank, [link = ends.link.get()](const std::string&) { link->wake(); });
  return ends;
}

}  // namespace

FabricEnds connect_fabric(c10d::Backend& group, const Network& network,
                          std::vector<std::unique_ptr<MessageChannel>>& channels,
                          std::chrono::milliseconds timeout) {
  const int rank = group.getRank();
  std::vector<int> remote;
  for (int peer = 0; peer < group.getSize(); ++peer) {
    if (peer != rank && !channels[static_cast<size_t>(peer)]) remote.push_back(peer);
  }
  FabricEnds ends;
  if (!remote.empty()) ends = open_ends(network, rank);
  const FabricInfo mine = describe(ends);
  const std::vector<FabricInfo> infos = gather_peer_info(group, &mine, 1, timeout);

  std::vector<FailureDetector::Peer> peers;
  for (const int peer : remote) {
    const FabricInfo& info = infos[static_cast<size_t>(peer)];
    if (info.provider != mine.provider) {
      throw ConfigError(
          "rank {} of the pipeline group has libfabric's provider {}, rank {} has {}; set "
          "SMDDP_FABRIC_PROVIDER alike on all hosts",
          rank, mine.provider.data(), peer, info.provider.data());
    }
    const std::string name = fmt::format("rank {} of the pipeline group", peer);
    ends.link->connect(peer, name, {info.address.data(), info.address_bytes});
    peers.push_back({.rank = peer, .name = name, .address = info.detector.data()});
  }
  if (!remote.empty()) {
    ends.detector->connect(peers, WaitLimit::after(timeout, "connecting a pipeline group"));
  }
  for (const int peer : remote) {
    channels[static_cast<size_t>(peer)] = std::make_unique<FabricChannel>(
        *ends.link, *ends.detector, FabricChannel::Ends{.rank = rank, .peer = peer});
  }
  return ends;
}

}  // namespace smp::transport
