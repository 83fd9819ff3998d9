// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/timeline.h"

#include <utility>

#include <fmt/format.h>

namespace smp::pipeline {
namespace {

double share(std::chrono::nanoseconds part, std::chrono::nanoseconds total) {
  return total.count() == 0
             ? 0.0
             : static_cast<double>(part.count()) / static_cast<double>(total.count());
}

std::chrono::nanoseconds mean_of(std::chrono::nanoseconds time, int64_t runs) {
  return runs == 0 ? std::chrono::nanoseconds(0) : time / runs;
}

std::string_view describe(Kind kind) {
  switch (kind) {
    case Kind::kForward:
      return "call";
    case Kind::kForwardReply:
      return "result";
    case Kind::kBackward:
      return "gradients of the result";
    case Kind::kBackwardReply:
      return "gradients of the arguments";
    case Kind::kValue:
      return "tensor";
    default:
      return "";  // bookkeeping: not drawn
  }
}

int64_t size_bytes(const Envelope& envelope) {
  const int64_t body = static_cast<int64_t>(envelope.body.size());
  return envelope.payload ? body + envelope.payload->size_bytes() : body;
}

}  // namespace

Timeline::Timeline(TimelineOptions options) : options_(std::move(options)) {}

void Timeline::begin_step(int64_t step) {
  step_ = step;
  use_ = {};
  begun_ = Clock::now();
  if (options_.recorder) options_.recorder->begin_step();
  if (options_.device_clock) options_.device_clock->begin_step();
}

void Timeline::begin_run() {
  run_begun_ = Clock::now();
  if (options_.device_clock) options_.device_clock->begin_run();
}

Timeline::Clock::duration Timeline::ran(const TaskKey& key, std::string_view name) {
  if (options_.device_clock) options_.device_clock->end_run();
  const auto end = Clock::now();
  const bool is_forward = key.phase == schedule::Phase::kForward;
  use_.computed += end - run_begun_;
  if (is_forward) use_.forward += end - run_begun_;
  ++use_.runs;
  add(is_forward ? record::Activity::kForward : record::Activity::kBackward, name, run_begun_, end,
      key.microbatch);
  return end - run_begun_;
}

Timeline::Clock::duration Timeline::ran_deferred() {
  if (options_.device_clock) options_.device_clock->end_run();
  const auto end = Clock::now();
  use_.computed += end - run_begun_;
  use_.deferred += end - run_begun_;
  add(record::Activity::kDeferred, "gradients of parameters", run_begun_, end, -1);
  return end - run_begun_;
}

std::chrono::nanoseconds Timeline::mean_run() const {
  if (!options_.device_clock) return mean_of(use_.computed - use_.deferred, use_.runs);
  const auto last = options_.device_clock->last();
  return last ? mean_of(last->computed, last->runs) : std::chrono::nanoseconds(0);
}

std::optional<StepShares> Timeline::shares() const {
  if (options_.device_clock) {
    const auto last = options_.device_clock->last();
    if (!last) return std::nullopt;
    return StepShares{.computed = share(last->computed, last->total)};
  }
  if (!last_) return std::nullopt;
  return StepShares{.computed = share(last_->computed, last_->total),
                    .forward = share(last_->forward, last_->total),
                    .deferred = share(last_->deferred, last_->total)};
}

void Timeline::waited(Clock::time_point begin, Clock::time_point end) {
  use_.waited += end - begin;
  add(record::Activity::kWait, "wait", begin, end, -1);
}

void Timeline::sent(int destination, const Envelope& envelope) {
  ++use_.messages_sent;
  const int64_t bytes = size_bytes(envelope);
  use_.bytes_sent += bytes;
  if (!options_.recorder) return;
  options_.recorder->sent(options_.ranks.at(static_cast<std::size_t>(destination)), bytes);
  add_transfer(/*begins=*/true, envelope);
}

void Timeline::received(const Envelope& envelope) {
  if (options_.recorder) add_transfer(/*begins=*/false, envelope);
}

void Timeline::add(record::Activity activity, std::string_view name, Clock::time_point begin,
                   Clock::time_point end, int64_t microbatch) {
  if (options_.recorder) options_.recorder->add(activity, name, begin, end, microbatch);
}

void Timeline::add_transfer(bool begins, const Envelope& envelope) {
  const std::string_view what = describe(envelope.kind);
  if (!options_.recorder->draws() || what.empty()) return;
  // Both ends give the same id; a call sends each kind once a hop, and its id names the caller.
  options_.recorder->transfer(
      {.begins = begins,
       .name = what,
       .id = fmt::format("{}.{}.{}.{}.{}", options_.ranks.front(), step_, envelope.call,
                         static_cast<int>(envelope.kind), envelope.hop),
       .microbatch = envelope.microbatch,
       .bytes = size_bytes(envelope)});
}

StepUse Timeline::end_step() {
  if (options_.device_clock) options_.device_clock->end_step();
  use_.total = Clock::now() - begun_;
  last_ = use_;
  if (options_.recorder) options_.recorder->end_step();
  return use_;
}

}  // namespace smp::pipeline
