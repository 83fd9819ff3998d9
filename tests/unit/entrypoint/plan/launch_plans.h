// SPDX-License-Identifier: Apache-2.0
// Launch plans, and what tests ask of them.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/launch_plan.h"
#include "tests/unit/entrypoint/job_builder.h"

namespace entrypoint {

using Words = std::vector<std::string>;

inline LaunchPlan plan_of(const JobConfig& job, const HostFacts& facts = a_machine()) {
  return make_launch_plan(job, facts);
}

/// "(absent)" for a variable that is not there.
inline std::string value_of(const std::vector<Variable>& variables, std::string_view name) {
  const std::string* value = find_variable(variables, name);
  return value == nullptr ? "(absent)" : *value;
}
inline std::string value_of(const LaunchPlan& plan, std::string_view name) {
  return value_of(plan.outline.environment.variables, name);
}

/// True if `words` stand in `argv` one after the other.
inline bool has_sequence(const Words& argv, const Words& words) {
  return std::search(argv.begin(), argv.end(), words.begin(), words.end()) != argv.end();
}

}  // namespace entrypoint
