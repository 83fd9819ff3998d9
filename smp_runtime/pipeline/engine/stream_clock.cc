// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/engine/stream_clock.h"

#include "smp_runtime/core/error.h"
#include "smp_runtime/cuda/stream_event.h"

namespace smp::pipeline {
namespace {

std::chrono::nanoseconds between(const c10::Event& begin, const c10::Event& end) {
  const std::chrono::duration<double, std::milli> elapsed(begin.elapsedTime(end));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed);
}

}  // namespace

StreamClock::EventPtr StreamClock::recorded() const {
  // The other kind of event has no time.
  auto event = std::make_unique<c10::Event>(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  event->record(cuda::current_stream(device_));
  return event;
}

void StreamClock::begin_step() {
  step_ = {};
  step_.begin = recorded();
  run_.reset();
}

void StreamClock::begin_run() { run_ = recorded(); }

void StreamClock::end_run() {
  SMP_CHECK(run_ != nullptr, "a run ends that has not begun");
  step_.runs.emplace_back(std::move(run_), recorded());
}

void StreamClock::end_step() {
  step_.end = recorded();
  given_.push_back(std::exchange(step_, {}));
  static_cast<void>(last());  // drops the events of steps that are done
}

std::optional<DeviceUse> StreamClock::last() {
  while (!given_.empty() && given_.front().end->query()) {
    const Step& done = given_.front();
    last_ = {.total = between(*done.begin, *done.end),
             .computed = {},
             .runs = static_cast<int64_t>(done.runs.size())};
    for (const auto& [begin, end] : done.runs) last_->computed += between(*begin, *end);
    given_.pop_front();
  }
  return last_;
}

}  // namespace smp::pipeline
