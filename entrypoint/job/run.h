// SPDX-License-Identifier: Apache-2.0
// Carries a plan out and reports its end.
#pragma once

#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/process/supervisor.h"

namespace entrypoint {

/// Fetches the code, plans again with what it holds, prepares the host, runs the plan, writes the
/// marker, tells the other hosts, ends what is left. Returns the exit status of `train`. Errors of
/// the job are part of the report; only what goes wrong before there is a job to report on is
/// thrown.
int run_job(JobConfig job, const HostFacts& facts, LaunchPlan plan, Supervisor& supervisor);

}  // namespace entrypoint
