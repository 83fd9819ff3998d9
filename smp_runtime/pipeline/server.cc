// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/server.h"

#include <algorithm>
#include <utility>

#include "smp_runtime/core/error.h"

namespace smp::pipeline {
namespace {

using transport::Clock;

/// The failure of another rank, which has told all ranks of it.
class RemoteFailure : public UserCodeError {
  using UserCodeError::UserCodeError;
};

/// How long a wait may go on without a look at signals.
constexpr auto kInterruptInterval = std::chrono::seconds(1);

/// A call has at most one forward and one backward, awaited at different times.
Scheduler::WaitId wait_id(uint64_t call, Phase phase) {
  return call * 2 + (phase == Phase::kBackward ? 1 : 0);
}

}  // namespace

Server::Server(transport::Transport& transport, Executor& executor, ServerOptions options)
    : transport_(transport),
      executor_(executor),
      options_(std::move(options)),
      scheduler_(options_.schedule, options_.thread_setup),
      step_order_(options_.schedule, options_.active_microbatches, options_.deterministic,
                  transport.size()) {
  SMP_CHECK(options_.active_microbatches > 0, "active_microbatches is {}",
            options_.active_microbatches);
}

// --- The step ---

void Server::drive(const std::string& kind, int64_t microbatches,
                   const std::function<void(int64_t)>& body, const std::function<Work()>& collect) {
  SMP_CHECK(driver(), "rank {} of the pipeline group drives a step", transport_.rank());
  if (transport_.size() == 1) {
    for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      run_body(microbatch, body);
    }
    collect();
    return;
  }
  guarded([&] {
    const auto begun_at = Clock::now();
    begin_step(kind, microbatches);
    loop([&] {
      while (started_ < microbatches && started_ - finished_ < step_order_.active()) {
        const int64_t microbatch = started_++;
        scheduler_.add({.microbatch = microbatch},
                       [this, microbatch, &body] { run_body(microbatch, body); });
      }
      return finished_ == microbatches && step_order_.trails_complete();
    });
    if (order_ == OrderMode::kRecord) step_order_.add_trail(0, encode_trail(scheduler_.trail()));
    step_order_.finish_step(
        std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun_at));
    Work result = collect();
    send_to_peers({.kind = Kind::kStepEnd,
                   .step = step_,
                   .body = std::move(result.body),
                   .payload = std::move(result.payload)});
  });
}

Work Server::serve() {
  SMP_CHECK(!driver(), "rank 0 of the pipeline group serves");
  Work result;
  guarded([&] {
    ++step_;
    begun_ = false;
    std::vector<Envelope> early = std::exchange(early_, {});
    for (Envelope& envelope : early) handle(std::move(envelope));
    loop([this] { return result_ != nullptr; });
    result = std::move(*std::exchange(result_, nullptr));
  });
  return result;
}

void Server::begin_step(const std::string& kind, int64_t microbatches) {
  ++step_;
  started_ = finished_ = 0;
  ended_ = -1;
  step_order_.begin_step(kind, microbatches);
  for (int peer = 1; peer < transport_.size(); ++peer) {
    send(peer,
         {.kind = Kind::kStepBegin, .step = step_, .body = step_order_.of_rank(peer).encode()});
  }
  follow(step_order_.of_rank(0));
}

void Server::follow(const RankOrder& order) {
  begun_ = true;
  order_ = order.mode;
  patience_ = order.patience;
  scheduler_.clear_trail();
  if (order_ == OrderMode::kPlanned) {
    scheduler_.follow(order.microbatches);
  } else {
    scheduler_.drop_order();  // of an earlier step
  }
}

void Server::run_body(int64_t microbatch, const std::function<void(int64_t)>& body) {
  if (transport_.size() == 1) {
    inline_microbatch_ = microbatch;
    try {
      body(microbatch);
    } catch (...) {
      inline_microbatch_ = -1;
      executor_.release(-1);
      throw;
    }
    inline_microbatch_ = -1;
    executor_.release(microbatch);
    return;
  }
  body(microbatch);
  ++finished_;
  executor_.release(microbatch);
  send_to_peers({.kind = Kind::kMicrobatchDone, .step = step_, .microbatch = microbatch});
  ended_ = microbatch;
}

template <typename Over>
void Server::loop(const Over& over) {
  while (true) {
    while (auto message = transport_.receive(Clock::time_point::min())) {
      handle(decode(std::move(*message)));
    }
    const bool ended = over();
    // A body that ended on this rank; its task has, too, by now.
    if (ended_ >= 0 && scheduler_.order_is_wrong(std::exchange(ended_, -1))) drop_order();
    if (begun_ && scheduler_.run_next()) continue;
    if (ended && scheduler_.tasks() == 0) return;
    wait_for_message();
  }
}

void Server::wait_for_message() {
  if (begun_ && scheduler_.held_by_order()) {
    if (auto message = transport_.receive(Clock::now() + patience_)) {
      handle(decode(std::move(*message)));
    } else {
      drop_order();
    }
    return;
  }
  const auto deadline = Clock::now() + options_.timeout;
  while (true) {
    if (auto message = transport_.receive(std::min(deadline, Clock::now() + kInterruptInterval))) {
      handle(decode(std::move(*message)));
      return;
    }
    if (Clock::now() >= deadline) throw HostError(hang_report());
    if (options_.check_interrupt) options_.check_interrupt();
  }
}

// --- Messages ---

void Server::handle(Envelope envelope) {
  if (envelope.step < step_) return;  // of a step that was aborted
  if (envelope.step > step_) {
    early_.push_back(std::move(envelope));
    return;
  }
  switch (envelope.kind) {
    case Kind::kStepBegin:
      return follow(RankOrder::decode(envelope.body));
    case Kind::kForward:
    case Kind::kBackward:
      return start_task(std::move(envelope));
    case Kind::kForwardReply:
    case Kind::kBackwardReply:
      return finish_reply(std::move(envelope));
    case Kind::kMicrobatchDone:
      executor_.release(envelope.microbatch);
      if (scheduler_.order_is_wrong(envelope.microbatch)) drop_order();
      if (order_ == OrderMode::kRecord && envelope.microbatch == 0) {
        send(0, {.kind = Kind::kTrail, .step = step_, .body = encode_trail(scheduler_.trail())});
      }
      return;
    case Kind::kTrail:
      return step_order_.add_trail(envelope.source, envelope.body);
    case Kind::kStepEnd:
      result_ = std::make_unique<Work>(
          Work{.body = std::move(envelope.body), .payload = std::move(envelope.payload)});
      return;
    case Kind::kAbort:
      throw RemoteFailure(envelope.body);
  }
}

void Server::start_task(Envelope envelope) {
  const Phase phase = envelope.kind == Kind::kForward ? Phase::kForward : Phase::kBackward;
  const TaskKey key{.microbatch = envelope.microbatch,
                    .phase = phase,
                    .depth = envelope.depth,
                    .visit = envelope.visit};
  scheduler_.add(key, [this, phase, request = std::move(envelope)]() mutable {
    const CallId id{.microbatch = request.microbatch, .call = request.call};
    Work work{.body = std::move(request.body), .payload = std::move(request.payload)};
    const bool forward = phase == Phase::kForward;
    Work reply = forward ? executor_.forward(id, request.target, std::move(work))
                         : executor_.backward(id, std::move(work));
    send(request.source, {.kind = forward ? Kind::kForwardReply : Kind::kBackwardReply,
                          .step = step_,
                          .microbatch = request.microbatch,
                          .call = request.call,
                          .visit = scheduler_.current().visit + 1,
                          .body = std::move(reply.body),
                          .payload = std::move(reply.payload)});
  });
}

void Server::finish_reply(Envelope envelope) {
  const Phase phase = envelope.kind == Kind::kForwardReply ? Phase::kForward : Phase::kBackward;
  const Scheduler::WaitId id = wait_id(envelope.call, phase);
  replies_[id] = {.body = std::move(envelope.body), .payload = std::move(envelope.payload)};
  SMP_CHECK(scheduler_.complete(id, envelope.visit), "an unexpected reply from rank {}",
            envelope.source);
}

// --- Calls from tasks ---

Work Server::request(Kind kind, int owner, int64_t target, uint64_t call, Work work) {
  const TaskKey& task = scheduler_.current();
  const Phase phase = kind == Kind::kForward ? Phase::kForward : Phase::kBackward;
  const Scheduler::WaitId id = wait_id(call, phase);
  awaited_[id] = {.owner = owner, .target = target, .phase = phase};
  send(owner, {.kind = kind,
               .step = step_,
               .microbatch = task.microbatch,
               .call = call,
               .depth = task.depth + 1,
               .visit = task.visit + 1,
               .target = target,
               .body = std::move(work.body),
               .payload = std::move(work.payload)});
  scheduler_.wait(id);
  awaited_.erase(id);
  return std::move(replies_.extract(id).mapped());
}

Server::Reply Server::call(int owner, int64_t target, Work request_work) {
  const uint64_t call = static_cast<uint64_t>(transport_.rank()) << 40 | ++calls_;
  return {.call = call,
          .work = request(Kind::kForward, owner, target, call, std::move(request_work))};
}

Work Server::call_backward(int owner, int64_t target, uint64_t call, Work gradients) {
  return request(Kind::kBackward, owner, target, call, std::move(gradients));
}

void Server::enter_backward() {
  if (scheduler_.in_task()) scheduler_.yield(Phase::kBackward);
}

int64_t Server::microbatch() const {
  return scheduler_.in_task() ? scheduler_.current().microbatch : inline_microbatch_;
}

void Server::send(int destination, Envelope envelope) {
  transport_.send(destination, encode(std::move(envelope)));
}

void Server::send_to_peers(const Envelope& envelope) {
  for (int peer = 0; peer < transport_.size(); ++peer) {
    if (peer != transport_.rank()) send(peer, envelope);
  }
}

void Server::drop_order() {
  scheduler_.drop_order();
  if (driver()) {
    step_order_.diverged();
  } else {
    send(0, {.kind = Kind::kTrail, .step = step_});  // the driver plans anew
  }
}

// --- Failure ---

void Server::guarded(const std::function<void()>& step) {
  try {
    step();
  } catch (const RemoteFailure&) {
    unwind();
    throw;
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    const std::string text =
        fmt::format("{} failed in step {}:\n{}", options_.name, step_, executor_.describe(error));
    for (int peer = 0; peer < transport_.size(); ++peer) {
      if (peer == transport_.rank()) continue;
      try {
        send(peer, {.kind = Kind::kAbort, .step = step_, .body = text});
      } catch (const HostError&) {
        // That peer is gone already.
      }
    }
    unwind();
    std::rethrow_exception(error);
  }
}

void Server::unwind() {
  scheduler_.cancel_all();
  awaited_.clear();
  replies_.clear();
  result_.reset();
  executor_.release(-1);
}

std::string Server::hang_report() const {
  std::string waits;
  for (const auto& [id, key] : scheduler_.waiting()) {
    const auto found = awaited_.find(id);
    if (found == awaited_.end()) continue;
    const Awaited& wait = found->second;
    waits +=
        fmt::format("\n  microbatch {} waits for the {} of {} on rank {} of the pipeline group",
                    key.microbatch, wait.phase == Phase::kForward ? "forward" : "backward",
                    options_.target_name ? options_.target_name(wait.target)
                                         : fmt::format("target {}", wait.target),
                    wait.owner);
  }
  if (waits.empty()) {
    waits = driver() ? "\n  for the other ranks of the pipeline group"
                     : "\n  for rank 0 of the pipeline group, which drives the step: do all ranks "
                       "of the group call the step the same number of times?";
  }
  return fmt::format("step {}: {} waited {} s without progress:{}", step_, options_.name,
                     std::chrono::duration_cast<std::chrono::seconds>(options_.timeout).count(),
                     waits);
}

}  // namespace smp::pipeline
