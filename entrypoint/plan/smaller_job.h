// SPDX-License-Identifier: Apache-2.0
// A job that goes on without a host which it has lost.
#pragma once

#include <cstdint>
#include <string>

#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

struct SmallerJob {
  JobConfig job;
  LaunchPlan plan;
};

/// `job`, whose ranks were started again `restarts` times, without `host`, with its code as it is.
/// Pure. Throws ConfigError, with the reason, where it cannot go on: no restart or too few hosts
/// are left, or the degrees do not fit them.
SmallerJob job_without_host(const JobConfig& job, const HostFacts& facts, const std::string& host,
                            std::int64_t restarts);

}  // namespace entrypoint
