// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/step_order.h"

#include <utility>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/log.h"
#include "smp_runtime/core/plain_bytes.h"

namespace smp::pipeline {
namespace {

/// So many wrong plans, and the order is kept by running one microbatch after the other.
constexpr int kMaxDivergences = 3;

/// For steps of a few milliseconds, in which other things take longer.
constexpr std::chrono::seconds kMinPatience{1};

}  // namespace

std::string RankOrder::encode() const {
  std::string bytes;
  append_plain(bytes, mode);
  append_plain(bytes, patience);
  for (const PlannedWork& one : work) append_plain(bytes, one.microbatch * 2 + one.is_deferred);
  return bytes;
}

RankOrder RankOrder::decode(std::string_view bytes) {
  RankOrder order{.mode = take_plain<OrderMode>(bytes),
                  .work = {},
                  .patience = take_plain<std::chrono::microseconds>(bytes)};
  SMP_CHECK(order.mode <= OrderMode::kPreferred, "an order of mode {}",
            static_cast<int>(order.mode));
  SMP_CHECK(bytes.size() % sizeof(int64_t) == 0, "{} bytes of an order", bytes.size());
  for (const int64_t one : take_plain_values<int64_t>(bytes, bytes.size() / sizeof(int64_t))) {
    order.work.push_back({.microbatch = one / 2, .is_deferred = one % 2 != 0});
  }
  return order;
}

StepOrder::StepOrder(const schedule::ScheduleShape& shape, const Rules& rules, int ranks)
    : shape_(shape), rules_(rules), ranks_(ranks) {}

void StepOrder::begin_step(const std::string& kind, int64_t microbatches) {
  shape_.microbatches = microbatches;
  recorded_ranks_ = 0;
  runs_.clear();
  if (!rules_.deterministic) return begin_preferred(kind);
  const bool one_by_one = shape_.schedule != Schedule::kSimple && shape_.active_microbatches == 1;
  if (one_by_one) return;
  plan_ = &plans_[{kind, microbatches}];
  mode_ = plan_->orders.empty() ? OrderMode::kRecord : OrderMode::kPlanned;
}

void StepOrder::begin_preferred(const std::string& kind) {
  if (!rules_.has_times || shape_.schedule != Schedule::kZeroBubble) return;
  preferred_ = &preferred_plans_[{kind, shape_.microbatches}];
  mode_ = preferred_->begin_step();
}

RankOrder StepOrder::of_rank(int rank) const {
  const auto place = static_cast<size_t>(rank);
  switch (mode_) {
    case OrderMode::kPlanned:
      return {.mode = mode_, .work = plan_->orders[place], .patience = plan_->patience};
    case OrderMode::kPreferred:
      return {.mode = mode_,
              .work = preferred_->orders()[place],
              .patience =
                  std::chrono::duration_cast<std::chrono::microseconds>(preferred_->patience())};
    default:
      return {.mode = mode_, .work = {}, .patience = {}};
  }
}

int64_t StepOrder::active() const { return mode_ == OrderMode::kRecord ? 1 : shape_.in_flight(); }

void StepOrder::add_recorded(int rank, std::string_view recorded) {
  if (mode_ != OrderMode::kRecord) {
    diverged();
    return;
  }
  ++recorded_ranks_;
  runs_.add(rank, decode_runs(recorded));
}

void StepOrder::add_times(int rank, int64_t step, std::span<const RecordedRun> runs) {
  if (step == timed_.step) timed_.plan->add(rank, runs, timed_.shape, ranks_);
}

bool StepOrder::is_recorded() const {
  return mode_ != OrderMode::kRecord || recorded_ranks_ >= ranks_ - 1;
}

void StepOrder::finish_step(int64_t step, std::chrono::nanoseconds took) {
  if (preferred_ != nullptr) preferred_->finish_step(took);
  if (mode_ == OrderMode::kTimed) timed_ = {.step = step, .plan = preferred_, .shape = shape_};
  if (mode_ != OrderMode::kRecord || plan_->divergences >= kMaxDivergences) return;
  const auto runs = runs_.whole();
  SMP_CHECK(runs, "a run of microbatch 0 is missing");
  plan_->patience = kMinPatience + 2 * std::chrono::duration_cast<std::chrono::microseconds>(took);
  plan_->orders = schedule::simulate_schedule(*runs, shape_, ranks_).orders();
}

void StepOrder::diverged() {
  if (plan_->orders.empty()) return;  // another rank has said so in this step
  plan_->orders.clear();
  ++plan_->divergences;
  SMP_LOG(
      warning,
      "deterministic_server: a step does not call modules as the recorded step did; the rest of "
      "it runs as messages arrive, the next step is recorded anew{}",
      plan_->divergences == kMaxDivergences ? "; from now on its microbatches run one by one" : "");
}

}  // namespace smp::pipeline
