// SPDX-License-Identifier: Apache-2.0
// Decides the order of a step's work on the ranks, and keeps it the same from run to run under
// `deterministic`: one step is recorded, with its microbatches one by one; from its runs an order
// is planned; later steps follow it until one proves different.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "smp_runtime/schedule/simulation.h"

namespace smp::pipeline {

using schedule::Schedule;
using schedule::TaskKey;

enum class OrderMode : uint8_t {
  kFree,     ///< as messages arrive, or by nature: one microbatch after the other
  kRecord,   ///< one microbatch at a time; the runs of microbatch 0 are noted
  kPlanned,  ///< as planned from the recorded runs: a sequence of microbatches on each rank
};

/// The driver's word to a rank, at the beginning of a step, on the order of its work.
struct RankOrder {
  OrderMode mode = OrderMode::kFree;
  std::vector<int64_t> microbatches;  ///< under kPlanned
  /// How long the plan may hold work back without any message before it counts as wrong.
  std::chrono::milliseconds patience{0};

  [[nodiscard]] std::string encode() const;
  /// Throws InternalError for bytes of another kind.
  [[nodiscard]] static RankOrder decode(std::string_view bytes);
};

/// The runs of microbatch 0 on a rank, as bytes.
[[nodiscard]] std::string encode_recorded(std::span<const TaskKey> runs);

/// The driver's side.
class StepOrder {
 public:
  /// `shape` without the number of microbatches, which each step says.
  StepOrder(const schedule::ScheduleShape& shape, bool deterministic, int ranks);

  /// Decides how the next step runs. Steps of one `kind` are expected to call the same modules.
  void begin_step(const std::string& kind, int64_t microbatches);
  [[nodiscard]] RankOrder of_rank(int rank) const;
  /// Number of microbatches that may be begun and unfinished in this step.
  [[nodiscard]] int64_t active() const;

  /// While recording: what `rank` noted. Later: the rank had to leave its order.
  void add_recorded(int rank, std::string_view recorded);
  /// True if all that the step's order needs has come from the other ranks.
  [[nodiscard]] bool is_recorded() const;
  /// The recorded step is over: plans, once the driver's own order is there too.
  /// `took` is the time of the whole step: no run of a step like it takes longer.
  void finish_step(std::chrono::milliseconds took);
  /// A rank left the planned order. From the third time on microbatches run one by one.
  void diverged();

 private:
  schedule::ScheduleShape shape_;  ///< of this step
  const bool deterministic_;
  const int ranks_;

  OrderMode mode_ = OrderMode::kFree;
  struct Plan {
    std::vector<std::vector<int64_t>> orders;  ///< by rank; empty: to be recorded
    int divergences = 0;
    std::chrono::milliseconds patience{0};
  };
  std::map<std::pair<std::string, int64_t>, Plan> plans_;
  Plan* plan_ = nullptr;                   ///< of this step
  std::map<int64_t, schedule::Run> runs_;  ///< recorded so far, by number
  int recorded_ranks_ = 0;
};

}  // namespace smp::pipeline
