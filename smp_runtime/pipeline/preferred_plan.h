// SPDX-License-Identifier: Apache-2.0
// A plan of steps that ranks follow as far as they can, made from the times of one: under
// kZeroBubble it tells a rank what is worth waiting for. Where times vary it is better to do what
// there is, so steps with the plan and without are measured, and the shorter ones win.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "smp_runtime/pipeline/recorded_run.h"

namespace smp::pipeline {

enum class OrderMode : uint8_t {
  kFree,       ///< as messages arrive, or by nature: one microbatch after the other
  kRecord,     ///< one microbatch at a time; the runs of microbatch 0 are noted
  kPlanned,    ///< as planned from the recorded runs: a sequence of microbatches on each rank
  kTimed,      ///< as kFree; the times of runs are noted
  kPreferred,  ///< as planned from the times, but for what is late
};

/// The driver's, of the steps of one kind.
class PreferredPlan {
 public:
  using Time = std::chrono::nanoseconds;

  /// Decides the order of the next step: kFree, kTimed, or kPreferred where it follows the plan.
  OrderMode begin_step();
  /// The step has ended.
  void finish_step(Time took);

  /// Times that a rank has noted in the last step under kTimed. Plans when all `ranks` have told
  /// theirs, unless microbatches went through the model on ways of their own.
  void add(int rank, std::span<const RecordedRun> runs, const schedule::ScheduleShape& shape,
           int ranks);

  /// By rank; under kFollow.
  [[nodiscard]] const std::vector<std::vector<schedule::PlannedWork>>& orders() const {
    return orders_;
  }
  /// How long a rank waits for what is next before it does other work: two runs, in the mean.
  [[nodiscard]] Time patience() const { return patience_; }

 private:
  /// Times of the last steps.
  class Recent {
   public:
    void add(Time took);
    [[nodiscard]] size_t count() const { return times_.size(); }
    [[nodiscard]] Time median() const;

   private:
    std::deque<Time> times_;
  };

  [[nodiscard]] bool is_compared() const;
  void plan(const schedule::ScheduleShape& shape, int ranks);

  int64_t steps_ = 0;
  OrderMode mode_ = OrderMode::kFree;
  CollectedRuns runs_;
  int told_ = 0;
  std::vector<std::vector<schedule::PlannedWork>> orders_;
  Time patience_{0};
  Recent without_, with_;
  bool is_told_ = false;  ///< to the log, what the comparison has shown
};

}  // namespace smp::pipeline
