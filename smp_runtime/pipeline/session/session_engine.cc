// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/session/session_engine.h"

#include <utility>

#include <fmt/format.h>

#include "smp_runtime/session/c10d_store.h"
#include "smp_runtime/transport/channel/process_transport.h"
#include "smp_runtime/transport/loopback.h"

namespace smp::pipeline {
namespace {

using topology::Group;

std::unique_ptr<transport::Transport> connect(session::Session& session,
                                              const std::optional<c10::Device>& device) {
  const int size = static_cast<int>(session.groups().ranks(Group::kPp).size());
  if (size == 1) return transport::LoopbackNetwork(1).endpoint(0);
  session::C10dStore store(
      session::own_connection(session.groups().new_store(Group::kPp, "pipeline")));
  return std::make_unique<transport::ProcessTransport>(
      store, session.groups().index(Group::kPp), size,
      transport::ProcessTransport::Options{.cuda_device = device ? device->index() : -1,
                                           .network = transport::read_network(),
                                           .timeout = session.options().timeout});
}

}  // namespace

std::unique_ptr<Engine> make_engine(session::Session& session, EngineOptions own) {
  const topology::ParallelConfig& config = session.config();
  const std::vector<int>& ranks = session.groups().ranks(Group::kPp);
  ServerOptions& server = own.server;
  // The ranks of a tensor-parallel group exchange in one order, so they work in one.
  server.shared_order = config.tensor_parallel_degree > 1 && ranks.size() > 1;
  // Shards are reduced as they come: the order of one partition's work is fixed anyway.
  server.deterministic = server.shared_order ||
                         (config.deterministic_server && config.sharded_data_parallel_degree == 1);
  server.schedule = schedule::parse_schedule(config.pipeline);
  server.active_microbatches = config.active_microbatches;
  server.memory = config.pipeline_memory;
  server.timeout = session.options().timeout;
  server.name = fmt::format("rank {}", session.ranks().rank);
  server.check_interrupt = [watch = session.barriers().watch(),
                            also = std::move(server.check_interrupt)] {
    if (also) also();
    if (watch) watch->check();
  };
  server.timeline = {.recorder = session.recorder(), .ranks = ranks};
  if (!session.options().direct_exchange) own.direct = {};
  std::unique_ptr<transport::Transport> transport = connect(session, own.device);
  return std::make_unique<Engine>(std::move(transport), std::move(own));
}

}  // namespace smp::pipeline
