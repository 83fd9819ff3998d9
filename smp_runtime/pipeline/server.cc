// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/server.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"

namespace smp::pipeline {
namespace {

using transport::Clock;

/// The failure of another rank, which has told all ranks of it.
class RemoteFailure : public UserCodeError {
  using UserCodeError::UserCodeError;
};

/// How long a planned order may hold runnable work back before it counts as wrong. Only a step
/// whose control flow changed gets there, and then every such wait would be for ever.
constexpr auto kOrderPatience = std::chrono::seconds(2);

/// So many wrong plans, and the order is kept by running one microbatch after the other.
constexpr int kMaxDivergences = 3;

/// A call has at most one forward and one backward, awaited at different times.
Scheduler::WaitId wait_id(uint64_t call, Phase phase) {
  return call * 2 + (phase == Phase::kBackward ? 1 : 0);
}

template <typename T>
std::string to_bytes(const std::vector<T>& values) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> from_bytes(std::string_view bytes) {
  SMP_CHECK(bytes.size() % sizeof(T) == 0, "{} bytes", bytes.size());
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

struct TrailEntry {
  int64_t visit;
  int64_t depth;
  int64_t phase;
};

}  // namespace

Server::Server(transport::Transport& transport, Executor& executor, ServerOptions options)
    : transport_(transport),
      executor_(executor),
      options_(std::move(options)),
      scheduler_(options_.schedule, options_.thread_setup) {
  SMP_CHECK(options_.active_microbatches > 0, "active_microbatches is {}",
            options_.active_microbatches);
}

// --- The step ---

void Server::drive(int64_t microbatches, const std::function<void(int64_t)>& body,
                   const std::function<Work()>& collect) {
  SMP_CHECK(driver(), "rank {} of the pipeline group drives a step", transport_.rank());
  if (transport_.size() == 1) {
    for (int64_t microbatch = 0; microbatch < microbatches; ++microbatch) {
      run_body(microbatch, body);
    }
    collect();
    return;
  }
  guarded([&] {
    begin_step(microbatches);
    const int64_t active = order_ == Order::kRecord                 ? 1
                           : options_.schedule == Schedule::kSimple ? microbatches
                                                                    : options_.active_microbatches;
    const auto over = [&] {
      while (started_ < microbatches && started_ - finished_ < active) {
        const int64_t microbatch = started_++;
        scheduler_.add({.microbatch = microbatch},
                       [this, microbatch, &body] { run_body(microbatch, body); });
      }
      const bool trails_in = order_ != Order::kRecord || trails_ == transport_.size() - 1;
      return finished_ == microbatches && trails_in;
    };
    loop(over);
    if (order_ == Order::kRecord) make_plan(microbatches);
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

void Server::begin_step(int64_t microbatches) {
  ++step_;
  started_ = finished_ = 0;
  begun_ = true;
  order_ = Order::kFree;
  if (options_.deterministic) {
    const bool planned = !plan_.empty() && planned_microbatches_ == microbatches;
    order_ = planned ? Order::kPlanned : Order::kRecord;
    trails_ = 0;
    trail_.clear();
    scheduler_.clear_trail();
    if (planned) scheduler_.follow(plan_[0]);
  }
  for (int peer = 1; peer < transport_.size(); ++peer) {
    std::string body(1, static_cast<char>(order_));
    if (order_ == Order::kPlanned) body += to_bytes(plan_[static_cast<size_t>(peer)]);
    send(peer, {.kind = Kind::kStepBegin, .step = step_, .body = std::move(body)});
  }
}

void Server::run_body(int64_t microbatch, const std::function<void(int64_t)>& body) {
  if (transport_.size() == 1) {
    inline_microbatch_ = microbatch;
    body(microbatch);
    inline_microbatch_ = -1;
    executor_.release(microbatch);
    return;
  }
  body(microbatch);
  ++finished_;
  executor_.release(microbatch);
  send_to_peers({.kind = Kind::kMicrobatchDone, .step = step_, .microbatch = microbatch});
}

template <typename Over>
void Server::loop(const Over& over) {
  while (true) {
    while (auto message = transport_.receive(Clock::time_point::min())) {
      handle(decode(std::move(*message)));
    }
    const bool ended = over();
    if (begun_ && scheduler_.run_next()) continue;
    if (ended && scheduler_.tasks() == 0) return;
    wait_for_message();
  }
}

void Server::wait_for_message() {
  if (begun_ && scheduler_.held_by_order()) {
    if (auto message = transport_.receive(Clock::now() + kOrderPatience)) {
      handle(decode(std::move(*message)));
    } else {
      drop_order();
    }
    return;
  }
  auto message = transport_.receive(Clock::now() + options_.timeout);
  if (!message) throw HostError(hang_report());
  handle(decode(std::move(*message)));
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
      return handle_step_begin(envelope);
    case Kind::kForward:
    case Kind::kBackward:
      return start_task(std::move(envelope));
    case Kind::kForwardReply:
    case Kind::kBackwardReply:
      return finish_reply(std::move(envelope));
    case Kind::kMicrobatchDone:
      executor_.release(envelope.microbatch);
      if (order_ == Order::kRecord && envelope.microbatch == 0) {
        std::vector<TrailEntry> entries;
        for (const TaskKey& key : scheduler_.trail()) {
          if (key.microbatch == 0) {
            entries.push_back({key.visit, key.depth, static_cast<int64_t>(key.phase)});
          }
        }
        send(0, {.kind = Kind::kTrail, .step = step_, .body = to_bytes(entries)});
      }
      return;
    case Kind::kTrail:
      return handle_trail(envelope);
    case Kind::kStepEnd:
      result_ = std::make_unique<Work>(
          Work{.body = std::move(envelope.body), .payload = std::move(envelope.payload)});
      return;
    case Kind::kAbort:
      throw RemoteFailure(envelope.body);
  }
}

void Server::handle_step_begin(const Envelope& envelope) {
  SMP_CHECK(!envelope.body.empty(), "an empty step-begin message");
  begun_ = true;
  order_ = static_cast<Order>(envelope.body[0]);
  scheduler_.clear_trail();
  if (order_ == Order::kPlanned) {
    scheduler_.follow(from_bytes<int64_t>(std::string_view(envelope.body).substr(1)));
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

// --- The order under `deterministic` ---

std::vector<Visit> Server::visits_of_first_microbatch() const {
  std::vector<Visit> visits;
  for (const auto& [index, visit] : trail_) {
    SMP_CHECK(index == static_cast<int64_t>(visits.size()), "visit {} of microbatch 0 is missing",
              visits.size());
    visits.push_back(visit);
  }
  return visits;
}

void Server::handle_trail(const Envelope& envelope) {
  if (order_ != Order::kRecord) {  // the notice of a rank that had to leave its plan
    plan_.clear();
    return;
  }
  ++trails_;
  for (const TrailEntry& entry : from_bytes<TrailEntry>(envelope.body)) {
    trail_[entry.visit] = {.rank = envelope.source,
                           .phase = static_cast<Phase>(entry.phase),
                           .depth = static_cast<int>(entry.depth)};
  }
}

void Server::make_plan(int64_t microbatches) {
  if (divergences_ >= kMaxDivergences) return;
  for (const TaskKey& key : scheduler_.trail()) {
    if (key.microbatch == 0) {
      trail_[key.visit] = {.rank = 0, .phase = key.phase, .depth = key.depth};
    }
  }
  const int64_t active =
      options_.schedule == Schedule::kSimple ? microbatches : options_.active_microbatches;
  plan_ = plan_order(visits_of_first_microbatch(), microbatches, active, options_.schedule,
                     transport_.size());
  planned_microbatches_ = microbatches;
}

void Server::drop_order() {
  scheduler_.drop_order();
  ++divergences_;
  if (divergences_ <= kMaxDivergences) {
    SMP_LOG(warning,
            "deterministic_server: step {} on {} does not call modules as the recorded step did; "
            "its order is free, the next step is recorded anew{}",
            step_, options_.name,
            divergences_ == kMaxDivergences ? "; from now on microbatches run one by one" : "");
  }
  if (driver()) {
    plan_.clear();
  } else {
    send(0, {.kind = Kind::kTrail, .step = step_});
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
