// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/recorded_run.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/plain_bytes.h"

namespace smp::pipeline {
namespace {

/// A year. The simulation adds up such times.
constexpr int64_t kLongest = std::chrono::nanoseconds(std::chrono::hours(24 * 366)).count();

bool is_same(const RecordedRun& one, const RecordedRun& other) {
  const auto key = [](const RecordedRun& run) {
    return std::tie(run.run, run.depth, run.phase, run.turns, run.recomputes);
  };
  return key(one) == key(other);
}

}  // namespace

schedule::Run RecordedRun::on(int rank) const {
  return {.rank = rank,
          .phase = static_cast<schedule::Phase>(phase),
          .depth = static_cast<int>(depth),
          .turns = turns != 0,
          .work = work,
          .deferred = deferred,
          .recomputes = recomputes != 0};
}

std::string encode_runs(std::span<const RecordedRun> runs) {
  std::string bytes;
  append_plain_values(bytes, runs);
  return bytes;
}

std::vector<RecordedRun> decode_runs(std::string_view bytes) {
  SMP_CHECK(bytes.size() % sizeof(RecordedRun) == 0, "{} bytes of runs", bytes.size());
  auto runs = take_plain_values<RecordedRun>(bytes, bytes.size() / sizeof(RecordedRun));
  for (const RecordedRun& run : runs) {
    SMP_CHECK(run.phase >= 0 && run.phase <= static_cast<int64_t>(schedule::Phase::kBackward) &&
                  std::in_range<int>(run.depth),
              "phase {} at depth {} of a run", run.phase, run.depth);
    SMP_CHECK(
        run.work >= 0 && run.work <= kLongest && run.deferred >= 0 && run.deferred <= kLongest,
        "times {} and {} of a run", run.work, run.deferred);
  }
  return runs;
}

std::vector<RecordedRun> untimed_runs(std::span<const schedule::TaskKey> runs) {
  std::vector<RecordedRun> result;
  for (const schedule::TaskKey& key : runs) {
    if (key.microbatch != 0) continue;
    result.push_back(
        {.run = key.run, .depth = key.depth, .phase = static_cast<int64_t>(key.phase)});
  }
  return result;
}

void CollectedRuns::add(int rank, std::span<const RecordedRun> runs) {
  for (const RecordedRun& run : runs) runs_[run.run] = run.on(rank);
}

std::optional<std::vector<schedule::Run>> CollectedRuns::whole() const {
  std::vector<schedule::Run> runs;
  for (const auto& [number, run] : runs_) {
    if (number != static_cast<int64_t>(runs.size())) return std::nullopt;
    runs.push_back(run);
  }
  return runs;
}

void RunTimes::clear() {
  microbatches_.clear();
  turns_ = 0;
}

void RunTimes::ran(const schedule::TaskKey& key, Time took, int64_t left, int64_t recomputed) {
  Microbatch& microbatch = microbatches_[key.microbatch];
  const bool leaves = microbatch.left < left;
  for (; microbatch.left < left; ++microbatch.left) {
    microbatch.deferred.push_back(microbatch.runs.size());
  }
  microbatch.runs.push_back({.run = key.run,
                             .depth = key.depth,
                             .phase = static_cast<int64_t>(key.phase),
                             .turns = std::exchange(turns_, 0),
                             .work = took.count(),
                             .recomputes = leaves && recomputed > 0 ? 1 : 0});
}

void RunTimes::did_deferred(int64_t microbatch, Time took) {
  Microbatch& of = microbatches_[microbatch];
  SMP_CHECK(!of.deferred.empty(), "deferred work that no run of microbatch {} has left",
            microbatch);
  of.runs[of.deferred.front()].deferred += took.count();
  of.deferred.pop_front();
}

std::vector<RecordedRun> RunTimes::means() const {
  if (microbatches_.empty()) return {};
  std::vector<RecordedRun> means = microbatches_.begin()->second.runs;
  for (const auto& [number, other] : microbatches_) {
    if (!std::ranges::equal(means, other.runs, is_same)) return {};
    if (number == microbatches_.begin()->first) continue;
    for (size_t run = 0; run < means.size(); ++run) {
      means[run].work += other.runs[run].work;
      means[run].deferred += other.runs[run].deferred;
    }
  }
  const auto count = static_cast<int64_t>(microbatches_.size());
  for (RecordedRun& run : means) {
    run.work /= count;
    run.deferred /= count;
  }
  return means;
}

}  // namespace smp::pipeline
