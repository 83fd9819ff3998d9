// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <span>
#include <string>
#include <utility>

#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/transport/channel/connect.h"
#include "smp_runtime/transport/channel/shared_memory_channel.h"
#include "smp_runtime/transport/host_identity.h"

namespace smp::transport {
namespace {

/// A rank's description of itself to the others.
struct PeerInfo {
  std::array<char, 128> host{};
  std::array<char, 64> address{};  ///< of its memory: the rings into which the others write
  int32_t process = 0;
};

std::shared_ptr<SharedMemory> open_quietly(const PeerInfo& info, size_t bytes) {
  try {
    return std::make_shared<SharedMemory>(SharedMemory::open(info.address.data(), bytes));
  } catch (const HostError& error) {
    SMP_LOG(warning, "messages to and from process {} of this host go over the network: {}",
            info.process, error.what());
    return nullptr;
  }
}

}  // namespace

std::vector<std::unique_ptr<MessageChannel>> connect_shared_memory(const StoreGather& group) {
  const auto rank = static_cast<size_t>(group.rank);
  const auto size = static_cast<size_t>(group.size);
  const size_t bytes = size * SharedRing::size_bytes();
  const auto memory = std::make_shared<SharedMemory>(SharedMemory::create(bytes));
  PeerInfo mine{.process = getpid()};
  put(mine.host, host_identity());
  put(mine.address, memory->address());
  const std::vector<PeerInfo> infos =
      group.gather_values("memory", std::span<const PeerInfo>(&mine, 1));

  std::vector<std::shared_ptr<SharedMemory>> theirs(size);
  std::vector<uint8_t> opened(size, 0);
  for (size_t peer = 0; peer < size; ++peer) {
    if (peer == rank || infos[peer].host != mine.host) continue;
    theirs[peer] = open_quietly(infos[peer], bytes);
    opened[peer] = theirs[peer] ? 1 : 0;
  }
  // A pair uses its rings only when both can.
  const std::vector<uint8_t> matrix =
      group.gather_values("opened", std::span<const uint8_t>(opened));
  memory->close_address();

  std::vector<std::unique_ptr<MessageChannel>> channels(size);
  for (size_t peer = 0; peer < size; ++peer) {
    if (!theirs[peer] || matrix[peer * size + rank] == 0) continue;
    const auto ring = [](SharedMemory& segment, size_t writer) {
      return SharedRing(segment.data() + writer * SharedRing::size_bytes());
    };
    channels[peer] = std::make_unique<SharedMemoryChannel>(
        SharedMemoryChannel::Rings{.inward_memory = memory,
                                   .outward_memory = theirs[peer],
                                   .inward = ring(*memory, peer),
                                   .outward = ring(*theirs[peer], rank)},
        infos[peer].process);
  }
  return channels;
}

}  // namespace smp::transport
