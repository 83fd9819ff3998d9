// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/process_transport.h"

#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include "smp_runtime/core/error.h"
#include "smp_runtime/transport/fabric_exchange.h"
#include "smp_runtime/transport/inbox.h"
#include "smp_runtime/transport/nccl_exchange.h"
#include "smp_runtime/transport/peer_link.h"
#include "smp_runtime/transport/ring_exchange.h"

namespace smp::transport {

class ProcessTransport::Impl {
 public:
  Impl(c10::intrusive_ptr<c10d::Backend> group, const Options& options)
      : backend(std::move(group)) {
    std::vector<std::unique_ptr<MessageWire>> wires = exchange_rings(*backend, options.timeout);
    fabric = exchange_fabric(*backend, options.network, wires, options.timeout);
    gpus = exchange_nccl(*backend, std::move(wires), options.cuda_device, options.timeout);
    for (int peer = 0; peer < backend->getSize(); ++peer) {
      std::unique_ptr<MessageWire>& wire = gpus.wires[static_cast<size_t>(peer)];
      if (!wire) {
        links.emplace_back();
        continue;
      }
      const PeerLink::Ends ends{
          .rank = backend->getRank(), .peer = peer, .cuda_device = options.cuda_device};
      links.push_back(std::make_unique<PeerLink>(std::move(wire), inbox, ends));
    }
  }

  ~Impl() {
    const auto deadline = Clock::now() + kCloseTimeout;
    for (const auto& link : links) {
      if (link) link->close();
    }
    for (const auto& link : links) {
      if (link) link->join(deadline);
    }
    if (fabric.detector) {
      fabric.detector->leave({.deadline = deadline, .operation = "leaving a pipeline group"});
    }
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  c10::intrusive_ptr<c10d::Backend> backend;
  Inbox inbox;
  FabricEnds fabric;  // as the next: its wires have gone to the links, which end before it
  NcclEnds gpus;      // its wires have gone to the links, which end before it
  std::vector<std::unique_ptr<PeerLink>> links;  // null for this rank
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
  impl_->links[static_cast<size_t>(destination)]->push(std::move(message));
}

std::optional<Message> ProcessTransport::receive(Clock::time_point deadline) {
  return impl_->inbox.take(deadline);
}

}  // namespace smp::transport
