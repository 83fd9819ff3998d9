// SPDX-License-Identifier: Apache-2.0
// Lines of the log before a job's program starts. Log readers search for some of them: they are the
// reference's, word by word.
#pragma once

#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/secrets.h"

namespace entrypoint {

/// Facts of the host, the decisions of the plan, its notes and warnings.
void log_summary(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan);

/// Section "Invoking user script": the training environment, every exported variable and the
/// command.
void log_invocation(const LaunchPlan& plan, const Secrets& secrets);

}  // namespace entrypoint
