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
constexpr std::chrono::milliseconds kMinPatience{1000};

struct RecordedTask {
  int64_t run;
  int64_t depth;
  int64_t phase;
};

/// All of `bytes`.
template <typename T>
std::vector<T> values_of(std::string_view bytes) {
  SMP_CHECK(bytes.size() % sizeof(T) == 0, "{} bytes of an order", bytes.size());
  return take_plain_values<T>(bytes, bytes.size() / sizeof(T));
}

}  // namespace

std::string RankOrder::encode() const {
  std::string bytes;
  append_plain(bytes, mode);
  append_plain(bytes, patience);
  append_plain_values<int64_t>(bytes, microbatches);
  return bytes;
}

RankOrder RankOrder::decode(std::string_view bytes) {
  RankOrder order{.mode = take_plain<OrderMode>(bytes),
                  .microbatches = {},
                  .patience = take_plain<std::chrono::milliseconds>(bytes)};
  SMP_CHECK(order.mode <= OrderMode::kPlanned, "an order of mode {}", static_cast<int>(order.mode));
  order.microbatches = values_of<int64_t>(bytes);
  return order;
}

std::string encode_recorded(std::span<const TaskKey> runs) {
  std::string bytes;
  for (const TaskKey& key : runs) {
    if (key.microbatch != 0) continue;
    append_plain(bytes, RecordedTask{key.run, key.depth, static_cast<int64_t>(key.phase)});
  }
  return bytes;
}

StepOrder::StepOrder(const schedule::ScheduleShape& shape, bool deterministic, int ranks)
    : shape_(shape), deterministic_(deterministic), ranks_(ranks) {}

void StepOrder::begin_step(const std::string& kind, int64_t microbatches) {
  shape_.microbatches = microbatches;
  recorded_ranks_ = 0;
  runs_.clear();
  const bool one_by_one = shape_.schedule != Schedule::kSimple && shape_.active_microbatches == 1;
  if (!deterministic_ || one_by_one) return;
  plan_ = &plans_[{kind, microbatches}];
  mode_ = plan_->orders.empty() ? OrderMode::kRecord : OrderMode::kPlanned;
}

RankOrder StepOrder::of_rank(int rank) const {
  if (mode_ != OrderMode::kPlanned) return {.mode = mode_, .microbatches = {}, .patience = {}};
  return {.mode = mode_,
          .microbatches = plan_->orders[static_cast<size_t>(rank)],
          .patience = plan_->patience};
}

int64_t StepOrder::active() const { return mode_ == OrderMode::kRecord ? 1 : shape_.in_flight(); }

void StepOrder::add_recorded(int rank, std::string_view recorded) {
  if (mode_ != OrderMode::kRecord) {
    diverged();
    return;
  }
  ++recorded_ranks_;
  for (const RecordedTask& entry : values_of<RecordedTask>(recorded)) {
    SMP_CHECK(entry.phase >= 0 && entry.phase <= static_cast<int64_t>(schedule::Phase::kBackward) &&
                  std::in_range<int>(entry.depth),
              "phase {} at depth {} from rank {}", entry.phase, entry.depth, rank);
    runs_[entry.run] = {.rank = rank,
                        .phase = static_cast<schedule::Phase>(entry.phase),
                        .depth = static_cast<int>(entry.depth)};
  }
}

bool StepOrder::is_recorded() const {
  return mode_ != OrderMode::kRecord || recorded_ranks_ >= ranks_ - 1;
}

void StepOrder::finish_step(std::chrono::milliseconds took) {
  if (mode_ != OrderMode::kRecord || plan_->divergences >= kMaxDivergences) return;
  std::vector<schedule::Run> runs;
  for (const auto& [index, run] : runs_) {
    SMP_CHECK(index == static_cast<int64_t>(runs.size()), "run {} of microbatch 0 is missing",
              runs.size());
    runs.push_back(run);
  }
  plan_->patience = kMinPatience + 2 * took;
  plan_->orders = schedule::simulate_schedule(runs, shape_, ranks_).orders();
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
