// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/smaller_job.h"

#include <algorithm>
#include <utility>

#include <fmt/ranges.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {

SmallerJob job_without_hosts(const JobConfig& job, const HostFacts& facts,
                             const std::vector<std::string>& lost, std::int64_t restarts) {
  const std::vector<std::string>& hosts = job.files.resources.hosts;
  for (const std::string& host : lost) {
    if (host == job.current_host() || std::ranges::find(hosts, host) == hosts.end()) {
      throw smp::ConfigError("{} is not among the other hosts, {}", host, fmt::join(hosts, ", "));
    }
  }
  JobFiles files = job.files;
  files.resources = opt_ml::without_hosts(std::move(files.resources), lost);
  const auto left = static_cast<std::int64_t>(files.resources.hosts.size());
  if (restarts == job.options.restarts) {
    throw smp::ConfigError("{} of {} restarts were made", restarts, job.options.restarts);
  }
  if (job.options.min_hosts == 0) throw smp::ConfigError("SM_LAUNCH_MIN_HOSTS is not set");
  if (left < job.options.min_hosts) {
    throw smp::ConfigError("{} hosts are left, and SM_LAUNCH_MIN_HOSTS is {}", left,
                           job.options.min_hosts);
  }
  SmallerJob smaller{.job = make_job_config(job.layout, std::move(files), job.environment)};
  smaller.job.program = job.program;
  smaller.plan = make_launch_plan(smaller.job, facts);
  if (!smaller.plan.outline.environment.job.files.empty()) {
    throw smp::ConfigError("variables of the job are too long to be changed: they are in files");
  }
  return smaller;
}

}  // namespace entrypoint
