// SPDX-License-Identifier: Apache-2.0
// Report of the ranks' waits in a pipeline group where nothing has moved for a whole timeout, as
// the text of the error.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "smp_runtime/pipeline/envelope.h"
#include "smp_runtime/schedule/task_order.h"

namespace smp::pipeline {

using schedule::Phase;

/// Ranks are those of the pipeline group.
struct Waits {
  struct Call {
    int64_t microbatch = 0;
    Phase phase = Phase::kForward;
    Route route;
  };
  struct Parked {
    int64_t microbatch = 0;
    int64_t target = 0;
  };
  std::vector<Call> calls;       ///< whose results have not come
  std::optional<int> tensor_of;  ///< a rank that holds a tensor that was asked for
  std::vector<Parked> parked;    ///< calls to serve that lack an argument of a third rank
  std::vector<int64_t> held;     ///< microbatches at hand that OpenMicrobatches does not admit
  bool held_by_order = false;    ///< there is work, which the recorded order has later
  bool driver = false;           ///< it is rank 0, which drives the step
};

/// A line each, behind a line end. `name_of` names what a call calls.
[[nodiscard]] std::string describe(const Waits& waits,
                                   const std::function<std::string(int64_t)>& name_of);

/// By rank, what describe() said there; nothing for a rank that does not answer.
using GroupWaits = std::vector<std::optional<std::string>>;

/// `who` is rank `rank` of the pipeline group, and has waited for so long.
[[nodiscard]] std::string hang_report(const std::string& who, int rank, int64_t step,
                                      std::chrono::seconds waited, const GroupWaits& waits);

}  // namespace smp::pipeline
