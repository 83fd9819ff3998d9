// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/smaller_job.h"

#include <utility>

#include "smp_runtime/core/error.h"

namespace entrypoint {

SmallerJob job_without_host(const JobConfig& job, const HostFacts& facts, const std::string& host,
                            std::int64_t restarts) {
  JobFiles files = job.files;
  files.resources = opt_ml::without_host(std::move(files.resources), host);
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
  return smaller;
}

}  // namespace entrypoint
