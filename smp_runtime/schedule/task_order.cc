// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/schedule/task_order.h"

#include <tuple>

#include "smp_runtime/core/error.h"

namespace smp::schedule {

Schedule parse_schedule(std::string_view name) {
  if (name == "simple") return Schedule::kSimple;
  // Without a backward there is nothing to take turns with.
  if (name == "interleaved" || name == "_only_forward") return Schedule::kInterleaved;
  throw ConfigError("pipeline=\"{}\"; expected interleaved, simple or _only_forward", name);
}

bool runs_before(Schedule schedule, Phase last, const TaskKey& a, const TaskKey& b) {
  const bool in_turn = schedule == Schedule::kInterleaved;
  const Phase first = in_turn && last == Phase::kForward ? Phase::kBackward : Phase::kForward;
  const auto key = [&](const TaskKey& task) {
    const bool feeds = in_turn && task.depth == 0 && task.phase == Phase::kForward;
    return std::tuple(!feeds, task.phase != first, task.microbatch, -task.depth, task.arrival);
  };
  return key(a) < key(b);
}

}  // namespace smp::schedule
