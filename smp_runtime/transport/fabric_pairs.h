// SPDX-License-Identifier: Apache-2.0
// Pairs of ranks that talk through libfabric.
#pragma once

#include <utility>

#include "smp_runtime/transport/fabric_link.h"
#include "smp_runtime/transport/pair_link.h"

namespace smp::transport {

class FabricPairs : public PairLink {
 public:
  explicit FabricPairs(const FabricSettings& settings) : link_(settings) {}

  [[nodiscard]] std::string address() const override { return link_.address(); }
  void connect(int peer, const std::string& name, const std::string& address) override {
    link_.connect(peer, name, address);
  }
  [[nodiscard]] bool is_connected(int peer) const override { return link_.is_connected(peer); }

  [[nodiscard]] Handle send(int peer, uint64_t tag, std::span<const std::byte> bytes,
                            std::shared_ptr<void> keeps) override {
    return std::make_shared<Posted>(link_.send(peer, tag, bytes, std::move(keeps)));
  }
  [[nodiscard]] Handle receive(int peer, uint64_t tag, std::span<std::byte> bytes, uint64_t ignored,
                               std::shared_ptr<void> keeps) override {
    return std::make_shared<Posted>(link_.receive(peer, tag, bytes, ignored, std::move(keeps)));
  }
  void cancel(const Handle& message) override {
    link_.cancel(static_cast<const Posted&>(*message).handle);
  }

  void wait_for_change(std::chrono::milliseconds longest) override {
    link_.wait_for_change(longest);
  }
  void wake() override { link_.wake(); }

 private:
  struct Posted : Message {
    explicit Posted(FabricLink::Handle posted) : handle(std::move(posted)) {}
    [[nodiscard]] bool done() const override { return handle->done(); }
    [[nodiscard]] uint64_t result() const override { return handle->result(); }
    FabricLink::Handle handle;
  };

  FabricLink link_;
};

}  // namespace smp::transport
