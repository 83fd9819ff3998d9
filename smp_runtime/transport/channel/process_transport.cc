// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/channel/process_transport.h"

#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/channel/connect_fabric.h"
#include "smp_runtime/transport/channel/connect_nccl.h"
#include "smp_runtime/transport/channel/connect_shared_memory.h"
#include "smp_runtime/transport/channel/peer_queue.h"
#include "smp_runtime/transport/inbox.h"

namespace smp::transport {

class ProcessTransport::Impl {
 public:
  Impl(c10::intrusive_ptr<c10d::Backend> group, const Options& options)
      : backend(std::move(group)) {
    std::vector<std::unique_ptr<MessageChannel>> channels =
        connect_shared_memory(*backend, options.timeout);
    fabric = connect_fabric(*backend, options.network, channels, options.timeout);
    gpus = connect_nccl(*backend, std::move(channels), options.cuda_device, options.timeout);
    for (int peer = 0; peer < backend->getSize(); ++peer) {
      std::unique_ptr<MessageChannel>& channel = gpus.channels[static_cast<size_t>(peer)];
      if (!channel) {
        queues.emplace_back();
        continue;
      }
      const PeerQueue::Ends ends{.rank = backend->getRank(),
                                 .peer = peer,
                                 .cuda_device = options.cuda_device,
                                 .timeout = options.timeout};
      queues.push_back(std::make_unique<PeerQueue>(std::move(channel), inbox, ends));
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

  c10::intrusive_ptr<c10d::Backend> backend;
  Inbox inbox;
  FabricEnds fabric;  // as the next: its channels have gone to the queues, which end before it
  NcclEnds gpus;
  std::vector<std::unique_ptr<PeerQueue>> queues;  // null for this rank
};

ProcessTransport::ProcessTransport(const std::string& group_name, const Options& options) {
  try {
    impl_ = std::make_unique<Impl>(
        c10d::resolve_process_group(group_name)->getBackend(c10::DeviceType::CPU), options);
  } catch (const c10::Error& error) {
    throw HostError("the group {}: {}", group_name, error.what_without_backtrace());
  }
}

ProcessTransport::~ProcessTransport() = default;

int ProcessTransport::rank() const { return impl_->backend->getRank(); }
int ProcessTransport::size() const { return impl_->backend->getSize(); }

void ProcessTransport::send(int destination, Message message) {
  SMP_CHECK(destination >= 0 && destination < size() && destination != rank(),
            "destination {} of {}", destination, size());
  impl_->queues[static_cast<size_t>(destination)]->push(std::move(message));
}

std::optional<Message> ProcessTransport::receive(Clock::time_point deadline) {
  return impl_->inbox.take(deadline);
}

}  // namespace smp::transport
