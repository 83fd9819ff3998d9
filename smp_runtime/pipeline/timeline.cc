// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/timeline.h"

#include <utility>

#include <fmt/format.h>

namespace smp::pipeline {
namespace {

template <typename Use>
double share(const Use& use) {
  return use.total.count() == 0
             ? 0.0
             : static_cast<double>(use.computed.count()) / static_cast<double>(use.total.count());
}

template <typename Use>
std::chrono::nanoseconds mean_of(const Use& use) {
  return use.runs == 0 ? std::chrono::nanoseconds(0) : use.computed / use.runs;
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

void Timeline::ran(const TaskKey& key, std::string_view name) {
  if (options_.device_clock) options_.device_clock->end_run();
  const auto end = Clock::now();
  use_.computed += end - run_begun_;
  ++use_.runs;
  add(key.phase == schedule::Phase::kForward ? record::Activity::kForward
                                             : record::Activity::kBackward,
      name, run_begun_, end, key.microbatch);
}

void Timeline::ran_deferred() {
  if (options_.device_clock) options_.device_clock->end_run();
  const auto end = Clock::now();
  use_.computed += end - run_begun_;
  add(record::Activity::kBackward, "gradients of parameters", run_begun_, end, -1);
}

std::chrono::nanoseconds Timeline::mean_run() const {
  if (!options_.device_clock) return mean_of(use_);
  const auto last = options_.device_clock->last();
  return last ? mean_of(*last) : std::chrono::nanoseconds(0);
}

std::optional<double> Timeline::computed_share() const {
  if (!options_.device_clock) return last_ ? std::optional(share(*last_)) : std::nullopt;
  const auto last = options_.device_clock->last();
  return last ? std::optional(share(*last)) : std::nullopt;
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
