// SPDX-License-Identifier: Apache-2.0
// A pipeline group of engines whose ranks are threads of this process.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "smp_runtime/pipeline/engine.h"
#include "smp_runtime/transport/loopback.h"

namespace smp::pipeline::testing {

class Ranks {
 public:
  Ranks(int size, ServerOptions server, const std::function<ModuleRunner(int, Engine*&)>& runner,
        const DirectOptions& direct = {})
      : network_(size), engines_(static_cast<size_t>(size)), handles_(static_cast<size_t>(size)) {
    for (int rank = 0; rank < size; ++rank) {
      const auto at = static_cast<size_t>(rank);
      server.name = fmt::format("rank {}", rank);
      engines_[at] = std::make_unique<Engine>(
          network_.endpoint(rank), EngineOptions{.server = server,
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
  transport::LoopbackNetwork network_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Engine*> handles_;
};

inline TensorTree one(const at::Tensor& tensor) { return {.stub = {}, .tensors = {tensor}}; }

}  // namespace smp::pipeline::testing
