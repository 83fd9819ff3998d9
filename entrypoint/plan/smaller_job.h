// SPDX-License-Identifier: Apache-2.0
// A job that goes on without hosts which it has lost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "entrypoint/plan/launch_plan.h"

namespace entrypoint {

struct SmallerJob {
  JobConfig job;
  LaunchPlan plan;
};

/// `job`, whose ranks were started again `restarts` times, without the hosts `lost`, with its code
/// as it is. Pure. Throws ConfigError, with the reason, where it cannot go on: no restart or too
/// few hosts are left, or the degrees do not fit them.
SmallerJob job_without_hosts(const JobConfig& job, const HostFacts& facts,
                             const std::vector<std::string>& lost, std::int64_t restarts);

}  // namespace entrypoint
