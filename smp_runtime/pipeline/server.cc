// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/server.h"

#include <algorithm>
#include <string>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"
#include "smp_runtime/pipeline/hang_report.h"

namespace smp::pipeline {
namespace {

/// Longest time for which a wait goes on without a look at signals.
constexpr auto kInterruptInterval = std::chrono::seconds(1);

/// A forward out of turn holds up a backward for a whole run; this part of one is waited for it.
constexpr int kSpinShare = 20;
constexpr std::chrono::nanoseconds kLongestSpin = std::chrono::milliseconds(100);

}  // namespace

Server::Server(transport::Transport& transport, Executor& executor, ServerOptions options)
    : transport_(transport),
      executor_(executor),
      options_(std::move(options)),
      scheduler_(options_.schedule, OpenMicrobatches(options_.shape(), transport.size()),
                 options_.thread_setup, options_.turn_setup,
                 [this](int64_t microbatch) { return executor_.deferred(microbatch); }),
      step_order_(options_.shape(),
                  {.deterministic = options_.deterministic,
                   .has_times = options_.timeline.device_clock == nullptr},
                  transport.size()),
      bodies_(transport.size()),
      timeline_(options_.timeline),
      values_(transport.rank(), [this](int destination, Envelope envelope) {
        send(destination, std::move(envelope));
      }) {
  SMP_CHECK(options_.active_microbatches > 0, "active_microbatches is {}",
            options_.active_microbatches);
}

// --- The step ---

void Server::drive(const std::string& kind, int64_t microbatches,
                   const std::function<void(int64_t)>& body,
                   const std::function<CallData()>& collect) {
  SMP_CHECK(driver(), "rank {} of the pipeline group drives a step", transport_.rank());
  if (transport_.size() == 1) {
    timeline_.begin_step(++step_);
    for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      timeline_.begin_run();
      run_body(microbatch, body);
      timeline_.ran({.microbatch = microbatch}, "step");
    }
    collect();
    last_step_ = timeline_.end_step();
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
      return finished_ == microbatches && step_order_.is_recorded();
    });
    if (order_ == OrderMode::kRecord) {
      step_order_.add_recorded(0, encode_runs(untimed_runs(scheduler_.recorded())));
    }
    step_order_.finish_step(step_, Clock::now() - begun_at);
    if (order_ == OrderMode::kTimed) step_order_.add_times(0, step_, times_.means());
    CallData result = collect();
    send_to_peers({.kind = Kind::kStepEnd,
                   .body = std::move(result.body),
                   .payload = std::move(result.payload)});
    last_step_ = timeline_.end_step();
  });
}

CallData Server::serve() {
  SMP_CHECK(!driver(), "rank 0 of the pipeline group serves");
  CallData result;
  guarded([&] {
    timeline_.begin_step(++step_);
    values_.forget_values();                       // one that came behind the end of its microbatch
    if (const auto shares = timeline_.shares()) {  // of the step before
      std::string use;
      append_plain(use, *shares);
      if (order_ == OrderMode::kTimed) use += encode_runs(times_.means());
      tell_driver({.kind = Kind::kUse, .body = std::move(use)});
    }
    begun_ = false;
    std::vector<Envelope> early = std::exchange(early_, {});
    for (Envelope& envelope : early) handle(std::move(envelope));
    loop([this] { return result_ != nullptr; });
    result = std::move(*std::exchange(result_, nullptr));
    last_step_ = timeline_.end_step();
  });
  return result;
}

std::optional<StepShares> Server::group_use() const {
  auto mean = timeline_.shares();
  if (!mean) return std::nullopt;
  for (const auto& [rank, use] : peers_use_) {
    mean->computed += use.computed;
    mean->forward += use.forward;
    mean->deferred += use.deferred;
  }
  const auto ranks = static_cast<double>(1 + peers_use_.size());
  for (double* share : {&mean->computed, &mean->forward, &mean->deferred}) *share /= ranks;
  return mean;
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
  values_.forget_microbatch(microbatch);
  send_to_peers({.kind = Kind::kMicrobatchDone, .microbatch = microbatch});
  ended_ = microbatch;
}

void Server::loop(const std::function<bool()>& over) {
  while (true) {
    const bool ended = look(over);
    if (begun_ && run_tasks(over)) continue;
    if (begun_ && scheduler_.order_is_wrong()) {
      drop_order();
      continue;
    }
    if (begun_ && scheduler_.may_defer() && run_deferred()) continue;
    if (ended && scheduler_.tasks() == 0) return;
    wait_for_message();
  }
}

bool Server::look(const std::function<bool()>& over) {
  if (aborted_) throw RemoteFailure(*aborted_);  // and the task that was told has caught it
  // Behind the step's end nothing is owed; the driver's FIN there is no loss.
  while (result_ == nullptr) {
    auto message = transport_.receive(Clock::time_point::min());
    if (!message) break;
    handle(opened(std::move(*message)));
  }
  const bool ended = over();
  // A body that ended on this rank; its task has, too, by now.
  if (ended_ >= 0) scheduler_.end_microbatch(std::exchange(ended_, -1));
  spin();
  return ended;
}

void Server::spin() {
  if (!begun_ || !scheduler_.has_premature_forward()) return;
  const auto deadline = Clock::now() + std::min(timeline_.mean_run() / kSpinShare, kLongestSpin);
  do {
    auto message = receive(deadline);
    if (!message) return;
    handle(opened(std::move(*message)));
  } while (result_ == nullptr && scheduler_.has_premature_forward());
}

bool Server::run_tasks(const std::function<bool()>& over) {
  timeline_.begin_run();
  return scheduler_.run_tasks([&] {
    const TaskKey& task = scheduler_.recorded().back();
    const auto took = timeline_.ran(task, timeline_.draws() ? name_of(task.target) : "");
    waits_since_.reset();
    if (order_ == OrderMode::kTimed) {
      const DeferredWork left = executor_.deferred(task.microbatch);
      times_.ran(task, took, left.left, left.recomputed);
    }
    look(over);
    timeline_.begin_run();
  });
}

std::optional<transport::Message> Server::receive(Clock::time_point deadline) {
  const auto begun_at = Timeline::Clock::now();
  auto message = transport_.receive(deadline);
  timeline_.waited(begun_at, Timeline::Clock::now());
  return message;
}

void Server::wait_for_message() {
  if (begun_ && scheduler_.prefers_to_wait()) {
    if (!waits_since_) waits_since_ = Clock::now();
    if (auto message = receive(*waits_since_ + patience_)) {
      handle(opened(std::move(*message)));
    } else {
      scheduler_.overrule();
    }
    return;
  }
  // Time is no proof: in a group whose order is shared, everybody may be waiting for one slow rank.
  if (begun_ && scheduler_.held_by_order() && !options_.shared_order) {
    if (auto message = receive(Clock::now() + patience_)) {
      handle(opened(std::move(*message)));
    } else {
      drop_order();
    }
    return;
  }
  const auto deadline = Clock::now() + options_.timeout;
  while (true) {
    if (auto message = receive(std::min(deadline, Clock::now() + kInterruptInterval))) {
      handle(opened(std::move(*message)));
      return;
    }
    if (Clock::now() >= deadline) fail_as_hung();
    if (options_.check_interrupt) options_.check_interrupt();
  }
}

// --- Messages ---

Envelope Server::opened(transport::Message message) {
  Envelope envelope = decode(std::move(message));
  bodies_.restore(envelope);
  return envelope;
}

void Server::handle(Envelope envelope) {
  if (envelope.kind == Kind::kUse) {  // of a step that has ended
    std::string_view use = envelope.body;
    peers_use_[envelope.source] = take_plain<StepShares>(use);
    return step_order_.add_times(envelope.source, envelope.step - 1, decode_runs(use));
  }
  if (envelope.kind == Kind::kInquiry) return answer_inquiry(transport_, envelope.source, waits());
  if (envelope.kind == Kind::kAnswer) return;  // too late
  if (envelope.step < step_) return;           // of a step that was aborted
  if (envelope.step > step_) {
    early_.push_back(std::move(envelope));
    return;
  }
  timeline_.received(envelope);
  values_.forget(envelope.released);
  switch (envelope.kind) {
    case Kind::kStepBegin:
      return follow(RankOrder::decode(envelope.body));
    case Kind::kForward:
    case Kind::kBackward:
    case Kind::kSend:
      if (values_.admit(envelope)) take_up(std::move(envelope));
      return;
    case Kind::kValue:
      for (Envelope& request : values_.receive(std::move(envelope))) take_up(std::move(request));
      return;
    case Kind::kForwardReply:
    case Kind::kBackwardReply:
      return finish_reply(std::move(envelope));
    case Kind::kMicrobatchDone:
      executor_.release(envelope.microbatch);
      values_.forget_microbatch(envelope.microbatch);
      scheduler_.end_microbatch(envelope.microbatch);
      if (order_ == OrderMode::kRecord && envelope.microbatch == 0) {
        send(0, {.kind = Kind::kRecordedOrder,
                 .body = encode_runs(untimed_runs(scheduler_.recorded()))});
      }
      return;
    case Kind::kRecordedOrder:
      return step_order_.add_recorded(envelope.source, envelope.body);
    case Kind::kStepEnd:
      result_ = std::make_unique<CallData>(
          CallData{.body = std::move(envelope.body), .payload = std::move(envelope.payload)});
      return;
    case Kind::kUse:
    case Kind::kInquiry:
    case Kind::kAnswer:
      return;
    case Kind::kAbort:
      if (values_.fetches_from()) {  // inside a task, which knows how to unwind
        aborted_ = std::move(envelope.body);
        throw TaskCancelled();
      }
      throw RemoteFailure(envelope.body);
  }
}

void Server::take_up(Envelope envelope) {
  if (envelope.kind == Kind::kSend) {
    values_.answer(envelope);
  } else {
    start_task(std::move(envelope));
  }
}

void Server::start_task(Envelope envelope) {
  const Phase phase = envelope.kind == Kind::kForward ? Phase::kForward : Phase::kBackward;
  const TaskKey key{.microbatch = envelope.microbatch,
                    .phase = phase,
                    .depth = envelope.depth,
                    .target = envelope.route.at(static_cast<size_t>(envelope.hop)).target,
                    .run = envelope.run,
                    .ranks = envelope.ranks};
  CallData data{.body = std::move(envelope.body),
                .payload = std::move(envelope.payload),
                .values = values_.take(std::exchange(envelope.inputs, {}))};
  scheduler_.add(key, [this, target = key.target, request = std::move(envelope),
                       data = std::move(data)]() mutable {
    const CallId id{.microbatch = request.microbatch, .call = request.call, .hop = request.hop};
    const bool forward = request.kind == Kind::kForward;
    const bool last = request.hop == (forward ? static_cast<int>(request.route.size()) - 1 : 0);
    Executor::Purpose purpose{.passes_on = !last, .outputs_kept = {}};
    if (last) purpose.outputs_kept = request.outputs_kept;
    CallData result = forward ? executor_.forward(id, target, std::move(data), purpose)
                              : executor_.backward(id, std::move(data), purpose);
    if (forward && result.final) scheduler_.expect_no_backward();
    values_.give(request, std::move(result.values));
    pass_on(std::move(request), std::move(result));
  });
}

/// Sends what a hop made to the next one on the way, or from the end of the way to the caller.
void Server::pass_on(Envelope request, CallData result) {
  const bool forward = request.kind == Kind::kForward;
  request.hop += forward ? 1 : -1;
  request.run = scheduler_.current().run + 1;
  request.ranks = scheduler_.current().ranks;
  request.body = std::move(result.body);
  request.payload = std::move(result.payload);
  if (request.hop >= 0 && request.hop < static_cast<int>(request.route.size())) {
    const int owner = request.route[static_cast<size_t>(request.hop)].owner;
    send(owner, std::move(request));
    return;
  }
  request.kind = forward ? Kind::kForwardReply : Kind::kBackwardReply;
  request.route.clear();
  request.outputs_kept.clear();
  const int caller = request.caller;
  send(caller, std::move(request));
}

void Server::send(int destination, Envelope envelope) {
  envelope.step = step_;
  envelope.released = values_.take_released(destination);
  try {
    bodies_.shorten(destination, envelope);
    timeline_.sent(destination, envelope);
    transport_.send(destination, encode(std::move(envelope)));
  } catch (const HostError&) {
    send_failed_ = true;
    throw;
  } catch (...) {  // as without memory for a copy of its tensors: it may not have left
    bodies_.start_anew(destination);
    throw;
  }
}

void Server::send_to_peers(const Envelope& envelope) {
  for (int peer = 0; peer < transport_.size(); ++peer) {
    if (peer != transport_.rank()) send(peer, envelope);
  }
}

void Server::tell_driver(Envelope envelope) {
  try {
    send(0, std::move(envelope));
  } catch (const HostError&) {
    // The driver ended the step without a need of this rank and left the job, or else receive()
    // says why.
  }
}

}  // namespace smp::pipeline
