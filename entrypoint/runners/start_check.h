// SPDX-License-Identifier: Apache-2.0
// The check before the start, run as the job's command is.
#pragma once

#include <functional>

#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

/// Runs `command` by `run`, and before it the plan's check in the same way. A check that fails ends
/// the job only where the plan says so, and else is logged; a stop during the check ends it, too.
/// Blocks as `run` does.
Outcome run_checked(const LaunchPlan& plan, const Command& command, const ProcessRunner& runner,
                    const std::function<Outcome(const Command&)>& run);

}  // namespace entrypoint
