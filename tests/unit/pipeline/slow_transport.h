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

#include "smp_runtime/core/deadline.h"
#include "smp_runtime/transport/transport.h"
#include "tests/unit/pipeline/wrapped_transport.h"

namespace smp::pipeline::testing {

/// Hands messages over late: a random time in front of some sends and receives. One in many, by its
/// seed, is late more often, and by milliseconds: as a rank looks for messages between any two of
/// its runs, those are late, too.
class SlowTransport : public WrappedTransport {
 public:
  SlowTransport(std::unique_ptr<transport::Transport> inner, uint32_t seed)
      : WrappedTransport(std::move(inner)), late_(seed % 256 == 0), random_(seed) {}

  void send(int destination, transport::Message message) override {
    pause();
    WrappedTransport::send(destination, std::move(message));
  }
  std::optional<transport::Message> receive(Clock::time_point deadline) override {
    pause();
    return WrappedTransport::receive(deadline);
  }

 private:
  // By the holder of the run token only, so the generator needs no lock.
  void pause() {
    if (random_() % (late_ ? 4 : 16) != 0) return;
    const uint32_t longest_micros = late_ ? 5000 : 200;
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % longest_micros));
  }

  bool late_;
  std::mt19937 random_;
};

}  // namespace smp::pipeline::testing
