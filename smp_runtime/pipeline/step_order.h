// SPDX-License-Identifier: Apache-2.0
// Decides the order of a step's work on the ranks. Under `deterministic` it is the same from run to
// run: one step is recorded, with its microbatches one by one; from its runs an order is planned;
// later steps follow it until one proves different. Under kZeroBubble see PreferredPlan.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp_runtime/pipeline/preferred_plan.h"
#include "smp_runtime/schedule/simulation.h"

namespace smp::pipeline {

using schedule::PlannedWork;
using schedule::Schedule;

/// The driver's word to a rank, at the beginning of a step, on the order of its work.
struct RankOrder {
  OrderMode mode = OrderMode::kFree;
  std::vector<PlannedWork> work;  ///< under kPlanned and kPreferred
  /// How long the plan may hold work back: under kPlanned without any message, before it counts as
  /// wrong; under kPreferred before other work goes first.
  std::chrono::microseconds patience{0};

  [[nodiscard]] std::string encode() const;
  /// Throws InternalError for bytes of another kind.
  [[nodiscard]] static RankOrder decode(std::string_view bytes);
};

/// The driver's side.
class StepOrder {
 public:
  struct Rules {
    bool deterministic = false;
    bool has_times = true;  ///< that of a run on its rank's thread is that of its work
  };
  /// `shape` without the number of microbatches, which each step says.
  StepOrder(const schedule::ScheduleShape& shape, const Rules& rules, int ranks);

  /// Decides how the next step runs. Steps of one `kind` are expected to call the same modules.
  void begin_step(const std::string& kind, int64_t microbatches);
  [[nodiscard]] RankOrder of_rank(int rank) const;
  /// Number of microbatches that may be begun and unfinished in this step.
  [[nodiscard]] int64_t active() const;

  /// While recording: what `rank` noted. Later: it had to leave its order.
  void add_recorded(int rank, std::string_view recorded);
  /// Times that `rank` has noted in that step, which has ended.
  void add_times(int rank, int64_t step, std::span<const RecordedRun> runs);
  /// True if all that the step's order needs has come from the other ranks.
  [[nodiscard]] bool is_recorded() const;
  /// The step is over. Of a recorded one: plans, once the driver's own order is there too; no run
  /// of a step like it takes longer than the whole step `took`.
  void finish_step(int64_t step, std::chrono::nanoseconds took);
  /// A rank left the planned order. From the third time on microbatches run one by one.
  void diverged();

 private:
  void begin_preferred(const std::string& kind);

  schedule::ScheduleShape shape_;  ///< of this step
  const Rules rules_;
  const int ranks_;

  OrderMode mode_ = OrderMode::kFree;
  struct Plan {
    std::vector<std::vector<PlannedWork>> orders;  ///< by rank; empty: to be recorded
    int divergences = 0;
    std::chrono::microseconds patience{0};
  };
  using Kind = std::pair<std::string, int64_t>;
  std::map<Kind, Plan> plans_;
  Plan* plan_ = nullptr;  ///< of this step, under `deterministic`
  std::map<Kind, PreferredPlan> preferred_plans_;
  PreferredPlan* preferred_ = nullptr;  ///< of this step, else
  struct Timed {
    int64_t step = -1;
    PreferredPlan* plan = nullptr;
    schedule::ScheduleShape shape;
  };
  Timed timed_;         ///< the last step whose times were noted
  CollectedRuns runs_;  ///< recorded so far
  int recorded_ranks_ = 0;
};

}  // namespace smp::pipeline
