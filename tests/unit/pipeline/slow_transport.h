// SPDX-License-Identifier: Apache-2.0
// A transport that is late at random.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "smp_runtime/transport/transport.h"

namespace smp::pipeline::testing {

/// Hands messages over late: a random time in front of some sends and receives.
class SlowTransport : public transport::Transport {
 public:
  SlowTransport(std::unique_ptr<transport::Transport> inner, uint32_t seed)
      : inner_(std::move(inner)), random_(seed) {}

  [[nodiscard]] int rank() const override { return inner_->rank(); }
  [[nodiscard]] int size() const override { return inner_->size(); }
  void send(int destination, transport::Message message) override {
    pause();
    inner_->send(destination, std::move(message));
  }
  std::optional<transport::Message> receive(transport::Clock::time_point deadline) override {
    pause();
    return inner_->receive(deadline);
  }

 private:
  // By the holder of the baton only, so the generator needs no lock.
  void pause() {
    if (random_() % 16 != 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % kLongestMicros));
  }
  static constexpr uint32_t kLongestMicros = 200;

  std::unique_ptr<transport::Transport> inner_;
  std::mt19937 random_;
};

}  // namespace smp::pipeline::testing
