// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/process_transport.h"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/transport/channel/peer_queue.h"
#include "smp_runtime/transport/fabric/fabric_channel.h"
#include "smp_runtime/transport/inbox.h"
#include "smp_runtime/transport/nccl/nccl_channel.h"
#include "smp_runtime/transport/shared_memory_channel.h"

namespace smp::transport {
namespace {

/// Codes of the messages with each peer whose channel leaves this host, where the job has a secret;
/// through shared memory nobody comes but processes of this user. Collective: each rank of a pair
/// gives its part of the key, so that nothing of an earlier connection is of use for it.
std::vector<std::optional<MessageChannel::Codes>> agree_on_codes(
    const StoreGather& group, const std::vector<std::unique_ptr<ByteChannel>>& here) {
  std::vector<std::optional<MessageChannel::Codes>> codes(here.size());
  const JobSecret* const secret = group.store.secret();
  // One of those that are missing is this rank's.
  const auto missing = std::ranges::count_if(here, [](const auto& channel) { return !channel; });
  if (secret == nullptr || missing == 1) return codes;
  const std::vector<std::string> nonces = group.gather("nonce", fresh_nonce());
  for (int peer = 0; peer < group.size; ++peer) {
    if (peer == group.rank || here[static_cast<size_t>(peer)]) continue;
    const auto [low, high] = std::minmax(peer, group.rank);
    const std::string purpose = fmt::format("messages {} {}", nonces[static_cast<size_t>(low)],
                                            nonces[static_cast<size_t>(high)]);
    codes[static_cast<size_t>(peer)] = {.key = MacKey(*secret, purpose),
                                        .rank = static_cast<uint64_t>(group.rank),
                                        .peer = static_cast<uint64_t>(peer)};
  }
  return codes;
}

}  // namespace

class ProcessTransport::Impl {
 public:
  Impl(const StoreGather& group, const Options& options) : rank(group.rank), size(group.size) {
    std::vector<std::unique_ptr<ByteChannel>> channels = connect_shared_memory(group);
    const auto codes = agree_on_codes(group, channels);
    fabric = connect_fabric(group, options.network, channels);
    gpus = connect_nccl(group, options.cuda_device);
    for (int peer = 0; peer < size; ++peer) {
      queues.emplace_back();
      if (peer == rank) continue;
      auto channel = std::make_unique<MessageChannel>(
          std::move(channels[static_cast<size_t>(peer)]),
          std::move(gpus.channels[static_cast<size_t>(peer)]),
          MessageChannel::Settings{.cuda_device = options.cuda_device,
                                   .timeout = options.timeout,
                                   .codes = codes[static_cast<size_t>(peer)]});
      queues.back() = std::make_unique<PeerQueue>(std::move(channel), inbox,
                                                  PeerQueue::Ends{.rank = rank, .peer = peer});
    }
  }

  ~Impl() {
    const auto deadline = Clock::now() + kCloseTimeout;
    for (const auto& queue : queues) {
      if (queue) queue->close();
    }
    for (const auto& queue : queues) {
      if (queue) queue->join(deadline);
    }
    if (fabric.detector) {
      fabric.detector->leave({.deadline = deadline, .operation = "leaving a pipeline group"});
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const int rank;
  const int size;
  Inbox inbox;
  FabricEnds fabric;  // as the next: its channels have gone to the queues, which end before it
  NcclEnds gpus;
  std::vector<std::unique_ptr<PeerQueue>> queues;  // null for this rank
};

ProcessTransport::ProcessTransport(KeyValueStore& store, int rank, int size, const Options& options)
    : impl_(std::make_unique<Impl>(
          StoreGather{.store = store,
                      .rank = rank,
                      .size = size,
                      .limit = WaitLimit::after(options.timeout, "connecting a pipeline group")},
          options)) {}

ProcessTransport::~ProcessTransport() = default;

int ProcessTransport::rank() const { return impl_->rank; }
int ProcessTransport::size() const { return impl_->size; }

void ProcessTransport::send(int destination, Message message) {
  SMP_CHECK(destination >= 0 && destination < size() && destination != rank(),
            "destination {} of {}", destination, size());
  impl_->queues[static_cast<size_t>(destination)]->push(std::move(message));
}

std::optional<Message> ProcessTransport::receive(Clock::time_point deadline) {
  return impl_->inbox.take(deadline);
}

}  // namespace smp::transport
