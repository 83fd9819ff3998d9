// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/record/recorder.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "smp_runtime/core/text.h"

namespace smp::record {
namespace {

constexpr std::int64_t kLinesBeforeDoubling = 1 << 14;
constexpr int kSpansOfStep = 5000;  ///< that the record keeps
constexpr int kTracksOfRank = 16;   ///< numbers of tracks that a rank has for itself

std::int64_t whole_micros(Clock::duration duration) {
  return std::chrono::duration_cast<std::chrono::microseconds>(duration).count();
}

/// The unit of the timeline's format.
double micros(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string json_text(std::string_view text) {
  return json_line(nlohmann::json(text), /*in_ascii=*/true);
}

/// 1, 2, 5, 10, 20, 50, …: all ranks keep the spans of the same steps, and of few.
bool is_round(std::int64_t step) {
  while (step >= 10 && step % 10 == 0) step /= 10;
  return step == 1 || step == 2 || step == 5;
}

int track_of(int rank, Lane lane) { return rank * kTracksOfRank + static_cast<int>(lane); }

/// Names of tracks, in the order in which they are to be shown.
std::string describe_tracks(const RecorderOptions& options) {
  std::string events =
      fmt::format(R"({{"ph":"M","name":"process_name","pid":{},"args":{{"name":{}}}}},)"
                  "\n",
                  options.first_rank, json_text(options.host));
  for (std::size_t i = 0; i < kLanes; ++i) {
    const auto lane = static_cast<Lane>(i);
    const std::string name = lane == Lane::kModules
                                 ? fmt::format("rank {}", options.rank)
                                 : fmt::format("rank {}: {}", options.rank, name_of(lane));
    for (const auto& [key, value] :
         {std::pair("thread_name", fmt::format(R"("name":"{}")", name)),
          std::pair("thread_sort_index",
                    fmt::format(R"("sort_index":{})", track_of(options.rank, lane)))}) {
      fmt::format_to(std::back_inserter(events),
                     R"({{"ph":"M","name":"{}","pid":{},"tid":{},"args":{{{}}}}},)"
                     "\n",
                     key, options.first_rank, track_of(options.rank, lane), value);
    }
  }
  return events;
}

/// Names of what a line of a group holds, in its order.
std::string columns() {
  std::string names =
      R"(["step","steps","trained","samples","begin_us","total_us","longest_us","step_us","nested_us","messages","bytes")";
  for (std::size_t i = 0; i < kActivities; ++i) {
    fmt::format_to(std::back_inserter(names), R"(,"{}_us")", name_of(static_cast<Activity>(i)));
  }
  return names + "]";
}

}  // namespace

Recorder::Recorder(RecorderOptions options)
    : options_(std::move(options)),
      process_(::getpid()),
      timeline_(options_.timeline_file),
      record_(options_.record_file) {
  if (timeline_.is_open()) events_ = describe_tracks(options_);
  draws_ = timeline_.is_open();
  if (!record_.is_open()) return;
  record_.add(fmt::format(
      R"({{"format":1,"rank":{},"first_rank":{},"host":{},"job":{},"columns":{}}})", options_.rank,
      options_.first_rank, json_text(options_.host), json_text(options_.job), columns()));
  record_.flush();
}

void Recorder::close() {
  if (::getpid() != process_) return;
  const std::lock_guard lock(mutex_);
  if (step_ > 0) {
    // Time behind the last step is no time for data; a step that failed is not counted.
    if (!in_step_) close_step(busy_until_);
    write_group(busy_until_);
    write_events();
    write_traffic();
  }
  timeline_.close();
  record_.close();
  step_ = 0;
}

void Recorder::begin_step() {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  if (step_ > 0) {
    if (!in_step_) draw(Activity::kData, "data", busy_until_, now, -1);
    close_step(now);
    if (group_.steps >= steps_a_line_) write_group(now);
  }
  ++step_;
  if (group_.steps == 0) group_ = {.first = step_, .begin = now};
  step_begun_ = now;
  in_step_ = true;
  is_chosen_ = record_.is_open() && is_round(step_);
  draws_ = timeline_.is_open() || is_chosen_;
}

void Recorder::end_step() {
  const std::lock_guard lock(mutex_);
  busy_until_ = Clock::now();
  in_step_ = false;
  group_.inside += busy_until_ - step_begun_;
  write_events();
}

void Recorder::describe_step(std::int64_t samples, bool trained) {
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  group_.inside += now - busy_until_;
  busy_until_ = now;
  group_.samples += samples;
  group_.trained += trained ? 1 : 0;
  write_events();
}

void Recorder::add(Activity activity, std::string_view name, Clock::time_point begin,
                   Clock::time_point end, std::int64_t microbatch) {
  const std::lock_guard lock(mutex_);
  if (in_step_ && lane_of(activity) != Lane::kModules) group_.nested += end - begin;
  draw(activity, name, begin, end, microbatch);
}

void Recorder::begin_optimizer() {
  const std::lock_guard lock(mutex_);
  if (++optimizers_ > 1) return;
  optimizer_begun_ = Clock::now();
  if (!in_step_ && step_ > 0) draw(Activity::kData, "data", busy_until_, optimizer_begun_, -1);
}

void Recorder::end_optimizer() {
  const std::lock_guard lock(mutex_);
  if (--optimizers_ > 0) return;
  const auto now = Clock::now();
  draw(Activity::kOptimizer, "optimizer", optimizer_begun_, now, -1);
  if (!in_step_) busy_until_ = now;
}

void Recorder::draw(Activity activity, std::string_view name, Clock::time_point begin,
                    Clock::time_point end, std::int64_t microbatch) {
  group_.spent[static_cast<std::size_t>(activity)] += end - begin;
  if (timeline_.is_open()) {
    const std::string label =
        microbatch < 0 ? std::string(name) : fmt::format("{} {}", microbatch, name);
    fmt::format_to(std::back_inserter(events_),
                   R"({{"ph":"X","cat":"{}","name":{},"pid":{},"tid":{},"ts":{:.3f},"dur":{:.3f},)"
                   R"("args":{{"step":{},"microbatch":{}}}}},)"
                   "\n",
                   name_of(activity), json_text(label), options_.first_rank,
                   track_of(options_.rank, lane_of(activity)), micros(begin.time_since_epoch()),
                   micros(end - begin), step_, microbatch);
  }
  if (is_chosen_ && span_count_ < kSpansOfStep) {
    ++span_count_;
    fmt::format_to(std::back_inserter(spans_), R"({}[{},{},{},{},{}])", spans_.empty() ? "" : ",",
                   static_cast<int>(activity), whole_micros(begin - step_begun_),
                   whole_micros(end - begin), microbatch, json_text(name));
  }
}

void Recorder::transfer(const Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  if (!timeline_.is_open()) return;
  fmt::format_to(
      std::back_inserter(events_),
      R"({{"ph":"{}","cat":"transfer","name":"{}","id":"{}","pid":{},"tid":{},"ts":{:.3f},)"
      R"("args":{{"step":{},"microbatch":{}{}}}}},)"
      "\n",
      transfer.begins ? 'b' : 'e', transfer.name, transfer.id, options_.first_rank,
      track_of(options_.rank, Lane::kModules), micros(Clock::now().time_since_epoch()), step_,
      transfer.microbatch, transfer.begins ? fmt::format(R"(,"bytes":{})", transfer.bytes) : "");
}

void Recorder::sent(int rank, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  ++group_.messages;
  group_.bytes += bytes;
  traffic_.add(rank, bytes);
}

void Recorder::sent(std::span<const int> ranks, std::int64_t bytes) {
  for (const int rank : ranks) {
    if (rank != options_.rank) sent(rank, bytes);
  }
}

void Recorder::note(std::string_view key, std::string_view json) {
  const std::lock_guard lock(mutex_);
  if (record_.is_open()) record_.add(fmt::format(R"({{{}:{}}})", json_text(key), json));
}

/// The step, with what came behind it, has ended.
void Recorder::close_step(Clock::time_point now) {
  ++group_.steps;
  group_.longest = std::max(group_.longest, now - step_begun_);
  if (is_chosen_) {
    write_spans();
    write_traffic();
  }
}

void Recorder::write_events() {
  timeline_.append(events_);
  events_.clear();
}

void Recorder::write_group(Clock::time_point now) {
  if (group_.steps == 0) return;
  if (record_.is_open()) {
    std::string line = fmt::format(
        "[{},{},{},{},{},{},{},{},{},{},{}", group_.first, group_.steps, group_.trained,
        group_.samples, whole_micros(group_.begin.time_since_epoch()),
        whole_micros(now - group_.begin), whole_micros(group_.longest), whole_micros(group_.inside),
        whole_micros(group_.nested), group_.messages, group_.bytes);
    for (const Clock::duration spent : group_.spent) {
      fmt::format_to(std::back_inserter(line), ",{}", whole_micros(spent));
    }
    record_.add(line + "]");
    if (++lines_ % kLinesBeforeDoubling == 0) steps_a_line_ *= 2;
  }
  group_ = {};
}

void Recorder::write_spans() {
  record_.add(fmt::format(R"({{"spans":{{"step":{},"begin_us":{},"dropped":{},"rows":[{}]}}}})",
                          step_, whole_micros(step_begun_.time_since_epoch()),
                          span_count_ == kSpansOfStep, spans_));
  spans_.clear();
  span_count_ = 0;
}

/// All of it since the begin of the job: the last such line counts.
void Recorder::write_traffic() {
  if (record_.is_open() && traffic_.changed()) record_.add(traffic_.take_line());
}

}  // namespace smp::record
