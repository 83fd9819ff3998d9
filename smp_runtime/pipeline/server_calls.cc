// SPDX-License-Identifier: Apache-2.0
// Calls that tasks of this rank make, and their replies; what backwards leave for later.
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/pipeline/server.h"

namespace smp::pipeline {
namespace {

/// A call has at most one forward and one backward, awaited at different times.
Scheduler::WaitId wait_id(uint64_t call, Phase phase) {
  return call * 2 + (phase == Phase::kBackward ? 1 : 0);
}

}  // namespace

CallData Server::request(Kind kind, const Route& route, uint64_t call, CallData data,
                         DirectValues direct) {
  SMP_CHECK(!route.empty(), "a call through no module");
  const TaskKey& task = scheduler_.current();
  const bool forward = kind == Kind::kForward;
  const Phase phase = forward ? Phase::kForward : Phase::kBackward;
  const Scheduler::WaitId id = wait_id(call, phase);
  awaited_[id] = {.route = route, .phase = phase};
  send(forward ? route.front().owner : route.back().owner,
       {.kind = kind,
        .microbatch = task.microbatch,
        .call = call,
        .depth = task.depth + 1,
        .run = task.run + 1,
        .ranks = task.ranks,
        .caller = transport_.rank(),
        .hop = forward ? 0 : static_cast<int>(route.size()) - 1,
        .route = route,
        .inputs = std::move(direct.inputs),
        .outputs_kept = std::move(direct.outputs_kept),
        .body = std::move(data.body),
        .payload = std::move(data.payload)});
  scheduler_.wait(id);
  awaited_.erase(id);
  return std::move(replies_.extract(id).mapped());
}

Server::Reply Server::call(const Route& route, CallData data, DirectValues direct) {
  const uint64_t call = new_id();
  return {.call = call,
          .data = request(Kind::kForward, route, call, std::move(data), std::move(direct))};
}

CallData Server::call_backward(const Route& route, uint64_t call, CallData gradients,
                               DirectValues direct) {
  return request(Kind::kBackward, route, call, std::move(gradients), std::move(direct));
}

void Server::send_value(int holder, ValueId id, int destination) {
  values_.ask(holder, id, destination, scheduler_.current().microbatch);
}

std::shared_ptr<transport::Payload> Server::fetch(int holder, ValueId id) {
  values_.begin_fetch(holder, id, scheduler_.current().microbatch);
  const auto deadline = Clock::now() + options_.timeout;
  while (true) {
    if (auto value = values_.fetched()) return value;
    auto message = transport_.receive(deadline);
    if (!message) fail_as_hung();
    handle(opened(std::move(*message)));
  }
}

void Server::enter_backward() {
  if (!scheduler_.in_task()) return;
  if (options_.schedule == Schedule::kSimple) {
    scheduler_.yield(Phase::kBackward);  // behind the forwards of the other microbatches
  } else {
    if (scheduler_.current().phase == Phase::kForward) times_.turn();
    scheduler_.enter(Phase::kBackward);  // the rank of the last module may be waiting for it
  }
}

bool Server::run_deferred() {
  timeline_.begin_run();
  const auto microbatch = executor_.run_deferred();
  if (!microbatch) return false;
  const auto took = timeline_.ran_deferred();
  waits_since_.reset();
  if (order_ == OrderMode::kTimed) times_.did_deferred(*microbatch, took);
  scheduler_.end_kept();
  return true;
}

int64_t Server::microbatch() const {
  return scheduler_.in_task() ? scheduler_.current().microbatch : inline_microbatch_;
}

void Server::finish_reply(Envelope envelope) {
  const Phase phase = envelope.kind == Kind::kForwardReply ? Phase::kForward : Phase::kBackward;
  const Scheduler::WaitId id = wait_id(envelope.call, phase);
  replies_[id] = {.body = std::move(envelope.body), .payload = std::move(envelope.payload)};
  const Scheduler::Progress progress{.run = envelope.run, .ranks = envelope.ranks};
  SMP_CHECK(scheduler_.complete(id, progress), "an unexpected reply from rank {}", envelope.source);
}

}  // namespace smp::pipeline
