// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/pipeline/task_order.h"

#include <tuple>

namespace smp::pipeline {

bool runs_before(Schedule schedule, const TaskKey& a, const TaskKey& b) {
  const Phase first = schedule == Schedule::kSimple ? Phase::kForward : Phase::kBackward;
  const auto key = [first](const TaskKey& task) {
    return std::tuple(task.phase != first, task.microbatch, -task.depth, task.arrival);
  };
  return key(a) < key(b);
}

}  // namespace smp::pipeline
