// SPDX-License-Identifier: Apache-2.0
// A rank's end of a group around another one: the base of those that refuse, wait, watch or are
// late.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/transport/transport.h"

namespace smp::pipeline::testing {

class WrappedTransport : public transport::Transport {
 public:
  explicit WrappedTransport(std::unique_ptr<transport::Transport> inner)
      : inner_(std::move(inner)) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  void send(int destination, transport::Message message) override {
    inner_->send(destination, std::move(message));
  }
  std::optional<transport::Message> receive(Clock::time_point deadline) override {
    return inner_->receive(deadline);
  }

 private:
  const std::unique_ptr<transport::Transport> inner_;
};

}  // namespace smp::pipeline::testing
