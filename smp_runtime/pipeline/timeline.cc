// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/timeline.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "smp_runtime/core/log.h"

namespace smp::pipeline {
namespace {

/// Microseconds, the unit of the format.
double micros(Timeline::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

double micros(Timeline::Clock::time_point time) { return micros(time.time_since_epoch()); }

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

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
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

/// Creates the file with the bracket that opens the array, unless another rank has. It appears
/// with the bracket in it: a rank that finds it may append at once.
void create(const std::string& file, int lane) {
  if (::access(file.c_str(), F_OK) == 0) return;
  const std::string draft = fmt::format("{}.{}", file, lane);
  const int created = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (created < 0) return;  // opening the file itself will fail too, and say so
  if (::write(created, "[\n", 2) == 2) ::link(draft.c_str(), file.c_str());
  ::close(created);
  ::unlink(draft.c_str());
}

}  // namespace

Timeline::Timeline(TimelineOptions options) : options_(std::move(options)) {
  if (options_.file.empty()) return;
  events_ = fmt::format(
      R"({{"ph":"M","name":"thread_name","pid":0,"tid":{0},"args":{{"name":"rank {0}"}}}},)"
      "\n",
      options_.lane);
}

void Timeline::begin_step(int64_t step) {
  step_ = step;
  use_ = {};
  begun_ = Clock::now();
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
  add_span(key.phase == Phase::kForward ? "forward" : "backward", name, run_begun_, end,
           key.microbatch);
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
  add_span("wait", "wait", begin, end, -1);
}

void Timeline::sent(const Envelope& envelope) {
  ++use_.messages_sent;
  use_.bytes_sent += size_bytes(envelope);
  add_transfer('b', envelope);
}

void Timeline::received(const Envelope& envelope) { add_transfer('e', envelope); }

void Timeline::add_span(std::string_view category, std::string_view name, Clock::time_point begin,
                        Clock::time_point end, int64_t microbatch) {
  if (options_.file.empty()) return;
  const std::string label =
      microbatch < 0 ? std::string(name) : fmt::format("{} {}", microbatch, name);
  fmt::format_to(std::back_inserter(events_),
                 R"({{"ph":"X","cat":"{}","name":{},"pid":0,"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                 R"("args":{{"step":{},"microbatch":{}}}}},)"
                 "\n",
                 category, json_text(label), options_.lane, micros(begin), micros(end - begin),
                 step_, microbatch);
}

void Timeline::add_transfer(char phase, const Envelope& envelope) {
  const std::string_view what = describe(envelope.kind);
  if (options_.file.empty() || what.empty()) return;
  // Both ends give the same id; a call sends each kind once a hop, and its id names the caller.
  fmt::format_to(
      std::back_inserter(events_),
      R"({{"ph":"{}","cat":"transfer","name":"{}","id":"{}.{}.{}.{}.{}","pid":0,"tid":{},"ts":{:.3f},)"
      R"("args":{{"step":{},"microbatch":{}{}}}}},)"
      "\n",
      phase, what, options_.group, step_, envelope.call, static_cast<int>(envelope.kind),
      envelope.hop, options_.lane, micros(Clock::now()), step_, envelope.microbatch,
      phase == 'b' ? fmt::format(R"(,"bytes":{})", size_bytes(envelope)) : "");
}

StepUse Timeline::end_step() {
  if (options_.device_clock) options_.device_clock->end_step();
  use_.total = Clock::now() - begun_;
  last_ = use_;
  if (!options_.file.empty()) append_to_file();
  return use_;
}

void Timeline::append_to_file() {
  create(options_.file, options_.lane);
  const int file = ::open(options_.file.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  const ssize_t written = file < 0 ? -1 : ::write(file, events_.data(), events_.size());
  const int error = errno;
  if (file >= 0) ::close(file);
  if (written != static_cast<ssize_t>(events_.size())) {
    SMP_LOG(warning, "{}: the timeline cannot be written and ends here: {}", options_.file,
            written < 0 ? std::strerror(error) : "the disk is full");
    options_.file.clear();
  }
  events_.clear();
}

}  // namespace smp::pipeline
