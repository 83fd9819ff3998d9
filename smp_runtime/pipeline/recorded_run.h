// SPDX-License-Identifier: Apache-2.0
// A run of a step as the rank that had it tells the driver, who plans the order of steps from it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/schedule/simulation.h"

namespace smp::pipeline {

/// One of a rank, which every microbatch has.
struct RecordedRun {
  int64_t run = 0;    ///< TaskKey::run
  int64_t depth = 0;  ///< TaskKey::depth
  int64_t phase = 0;
  int64_t turns = 0;       ///< 1: a forward of the body that goes on as its backward
  int64_t work = 1;        ///< how long it takes
  int64_t deferred = 0;    ///< how long the work that it has left for later takes
  int64_t recomputes = 0;  ///< 1: that keeps activations which the run has recomputed

  [[nodiscard]] schedule::Run on(int rank) const;
};

[[nodiscard]] std::string encode_runs(std::span<const RecordedRun> runs);
/// Throws InternalError for bytes of another kind.
[[nodiscard]] std::vector<RecordedRun> decode_runs(std::string_view bytes);

/// The runs of microbatch 0, which take equally long.
[[nodiscard]] std::vector<RecordedRun> untimed_runs(std::span<const schedule::TaskKey> runs);

/// The runs of a microbatch, from what its ranks tell of theirs.
class CollectedRuns {
 public:
  void clear() { runs_.clear(); }
  void add(int rank, std::span<const RecordedRun> runs);
  /// All of them in their order; none as long as one is missing.
  [[nodiscard]] std::optional<std::vector<schedule::Run>> whole() const;

 private:
  std::map<int64_t, schedule::Run> runs_;  ///< by number
};

/// Times of a rank's runs, from which those of a microbatch are made.
class RunTimes {
 public:
  using Time = std::chrono::nanoseconds;

  void clear();
  /// The running forward of the body goes on as a backward.
  void turn() { turns_ = 1; }
  /// A run is over; its microbatch has left `left` pieces of deferred work here so far, of which
  /// `recomputed` are not done and keep recomputed activations.
  void ran(const schedule::TaskKey& key, Time took, int64_t left, int64_t recomputed);
  /// The oldest piece that the microbatch has left is done.
  void did_deferred(int64_t microbatch, Time took);
  /// Means over the microbatches; none if these had other runs each.
  [[nodiscard]] std::vector<RecordedRun> means() const;

 private:
  struct Microbatch {
    std::vector<RecordedRun> runs;
    std::deque<size_t> deferred;  ///< by piece that is not done: what run has left it
    int64_t left = 0;
  };
  std::map<int64_t, Microbatch> microbatches_;
  int64_t turns_ = 0;  ///< the running one does
};

}  // namespace smp::pipeline
