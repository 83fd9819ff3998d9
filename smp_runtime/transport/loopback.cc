// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/loopback.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::transport {

class LoopbackNetwork::Endpoint : public Transport {
 public:
  Endpoint(std::shared_ptr<Inboxes> inboxes, int rank)
      : inboxes_(std::move(inboxes)), rank_(rank) {}

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return static_cast<int>(inboxes_->size()); }

  void send(int destination, Message message) override {
    SMP_CHECK(destination >= 0 && destination < size(), "destination {} of {}", destination,
              size());
    message.source = rank_;
    if (message.payload) message.payload = message.payload->copy();
    inboxes_->at(static_cast<size_t>(destination))->push(std::move(message));
  }

  std::optional<Message> receive(Clock::time_point deadline) override {
    return inboxes_->at(static_cast<size_t>(rank_))->take(deadline);
  }

 private:
  const std::shared_ptr<Inboxes> inboxes_;
  const int rank_;
};

LoopbackNetwork::LoopbackNetwork(int size) : inboxes_(std::make_shared<Inboxes>()) {
  SMP_CHECK(size > 0, "a group of {} ranks", size);
  for (int rank = 0; rank < size; ++rank) inboxes_->push_back(std::make_unique<Inbox>());
}

std::unique_ptr<Transport> LoopbackNetwork::endpoint(int rank) {
  return std::make_unique<Endpoint>(inboxes_, rank);
}

void LoopbackNetwork::lose(int rank) {
  for (size_t peer = 0; peer < inboxes_->size(); ++peer) {
    if (static_cast<int>(peer) == rank) continue;
    inboxes_->at(peer)->fail(fmt::format("rank {} is lost", rank));
  }
}

}  // namespace smp::transport
