// SPDX-License-Identifier: Apache-2.0
// A pipeline group of engines whose ranks are threads of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "smp_runtime/pipeline/engine/engine.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/pipeline/slow_transport.h"

namespace smp::pipeline::testing {

class Ranks {
 public:
  Ranks(int size, ServerOptions server, const std::function<ModuleRunner(int, Engine*&)>& runner,
        const DirectOptions& direct = {}, std::optional<uint32_t> late = {})
      : network_(size), engines_(static_cast<size_t>(size)), handles_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      const auto at = static_cast<size_t>(rank);
      server.name = fmt::format("rank {}", rank);
      engines_[at] = std::make_unique<Engine>(
          endpoint(rank, late), EngineOptions{.server = server,
                                              .run_module = runner(rank, handles_[at]),
                                              .describe = {},
                                              .after_backward_outside = {},
                                              .direct = direct});
      handles_[at] = engines_[at].get();
    }
  }

  Engine& engine(int rank) { return *engines_[static_cast<size_t>(rank)]; }

  /// Errors by rank.
  std::vector<std::string> step(int64_t microbatches, const std::function<void(int64_t)>& body) {
    std::vector<std::string> errors(engines_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < engines_.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          if (rank == 0) {
            engines_[0]->drive("step", microbatches, body, [] { return TensorTree{"done", {}}; });
          } else {
            engines_[rank]->serve();
          }
        } catch (const std::exception& error) {
          errors[rank] = error.what();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

 private:
  /// With a seed messages come late at random.
  std::unique_ptr<transport::Transport> endpoint(int rank, std::optional<uint32_t> late) {
    auto fast = network_.endpoint(rank);
    if (!late) return fast;
    return std::make_unique<SlowTransport>(std::move(fast), *late + static_cast<uint32_t>(rank));
  }

  transport::LoopbackNetwork network_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Engine*> handles_;
};

inline TensorTree one(const at::Tensor& tensor) { return {.definition = {}, .tensors = {tensor}}; }

}  // namespace smp::pipeline::testing
