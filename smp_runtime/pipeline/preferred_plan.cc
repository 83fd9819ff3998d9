// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/preferred_plan.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "smp_runtime/core/log.h"

namespace smp::pipeline {
namespace {

/// The first step makes what later ones find made.
constexpr int64_t kFirstTimed = 2;

/// In mean runs. Other work in the place of what comes late makes all late that is planned behind
/// it: with half a run, steps of four ranks whose runs and messages took some percent longer at
/// random were up to 13 % longer in simulations, and in none shorter by more than a hair.
constexpr int64_t kPatience = 2;

/// So many steps with the plan and without are compared.
constexpr size_t kCompared = 3;

/// Rounds times to quarters of the shortest one that counts. By times that differ by a hair the
/// simulation would give a rank other work just before that arrives which the others wait for.
void round_times(std::vector<schedule::Run>& runs) {
  int64_t longest = 0;
  for (const schedule::Run& run : runs) longest = std::max({longest, run.work, run.deferred});
  int64_t shortest = longest;
  for (const schedule::Run& run : runs) {
    for (const int64_t time : {run.work, run.deferred}) {
      if (time > longest / 16) shortest = std::min(shortest, time);
    }
  }
  const int64_t unit = std::max<int64_t>(1, shortest / 4);
  for (schedule::Run& run : runs) {
    for (int64_t* time : {&run.work, &run.deferred}) *time = (*time + unit / 2) / unit * unit;
  }
}

}  // namespace

void PreferredPlan::Recent::add(Time took) {
  times_.push_back(took);
  if (times_.size() > kCompared) times_.pop_front();
}

PreferredPlan::Time PreferredPlan::Recent::median() const {
  auto sorted = times_;
  std::ranges::sort(sorted);
  return sorted[sorted.size() / 2];
}

bool PreferredPlan::is_compared() const {
  return without_.count() == kCompared && with_.count() == kCompared;
}

OrderMode PreferredPlan::begin_step() {
  ++steps_;
  if (orders_.empty()) {
    // As microbatches may take other ways later on, if not for ever.
    const bool is_timed =
        steps_ >= kFirstTimed && std::has_single_bit(static_cast<uint64_t>(steps_));
    mode_ = is_timed ? OrderMode::kTimed : OrderMode::kFree;
    if (is_timed) {
      runs_.clear();
      told_ = 0;
    }
  } else {
    const bool is_followed =
        is_compared() ? with_.median() < without_.median() : with_.count() <= without_.count();
    mode_ = is_followed ? OrderMode::kPreferred : OrderMode::kFree;
  }
  return mode_;
}

void PreferredPlan::finish_step(Time took) {
  if (steps_ < kFirstTimed) return;
  (mode_ == OrderMode::kPreferred ? with_ : without_).add(took);
  if (orders_.empty() || is_told_ || !is_compared()) return;
  is_told_ = true;
  const auto ms = [](Time time) { return std::chrono::duration<double, std::milli>(time).count(); };
  SMP_LOG(
      info,
      "pipeline zero_bubble: a step takes {:.3g} ms with the work in a planned order, {:.3g} ms "
      "as messages arrive: the shorter one is kept",
      ms(with_.median()), ms(without_.median()));
}

void PreferredPlan::add(int rank, std::span<const RecordedRun> runs,
                        const schedule::ScheduleShape& shape, int ranks) {
  runs_.add(rank, runs);
  if (++told_ == ranks) plan(shape, ranks);
}

void PreferredPlan::plan(const schedule::ScheduleShape& shape, int ranks) {
  auto runs = runs_.whole();
  if (!runs || runs->empty()) return;
  round_times(*runs);
  const schedule::Simulation step = schedule::simulate_schedule(*runs, shape, ranks);
  int64_t work = 0;
  size_t count = 0;
  for (size_t rank = 0; rank < step.begun.size(); ++rank) {
    work += step.busy[rank];
    count += step.begun[rank].size();
  }
  patience_ = Time(kPatience * work / static_cast<int64_t>(count));
  orders_ = step.orders();
}

}  // namespace smp::pipeline
