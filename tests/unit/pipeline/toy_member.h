// SPDX-License-Identifier: Apache-2.0
// A rank of a pipeline group of toy programs.
#pragma once

#include <cstdint>
#include <vector>

#include "smp_runtime/pipeline/server.h"
#include "smp_runtime/transport/loopback.h"
#include "tests/unit/pipeline/slow_transport.h"
#include "tests/unit/pipeline/toy_program.h"

namespace smp::pipeline::testing {

/// A rank that runs a toy program, with messages that come late at random.
struct Member {
  Member(const std::vector<Module>& program, int rank, transport::LoopbackNetwork& network,
         const ServerOptions& options, uint32_t seed)
      : executor(program, rank),
        transport(network.endpoint(rank), seed),
        server(transport, executor, options) {
    executor.attach(server);
  }
  ToyExecutor executor;
  SlowTransport transport;
  Server server;
};

/// One step of the program on rank 0, a microbatch a result; the other ranks serve.
inline void run_driver(Member& driver, std::vector<Result>& results) {
  driver.server.drive(
      "step", static_cast<int64_t>(results.size()),
      [&](int64_t microbatch) {
        ToyExecutor::Tape tape;
        Result& result = results[static_cast<size_t>(microbatch)];
        result.value = driver.executor.run(0, microbatch + 1, tape);
        driver.server.enter_backward();
        size_t end = tape.size();
        result.derivative = driver.executor.unrun(tape, end, 1);
      },
      [] { return CallData{.body = "collected", .payload = nullptr}; });
}

}  // namespace smp::pipeline::testing
