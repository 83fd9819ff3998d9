// SPDX-License-Identifier: Apache-2.0
// The command of `train --suggest`: the module smdistributed.suggest over the job's script.
#pragma once

#include <string>
#include <vector>

#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

/// Python's command with `options`, those of `train --suggest`, and what they leave out: hosts,
/// their instance type and processes, as the job has them. `--write` names its hyperparameters.
/// Pure. Throws ConfigError for an entry point that is no Python script, and for a job whose
/// machines nothing tells.
std::vector<std::string> suggestion_command(const JobConfig& job, const HostFacts& facts,
                                            const LaunchPlan& plan,
                                            const std::vector<std::string>& options);

}  // namespace entrypoint
