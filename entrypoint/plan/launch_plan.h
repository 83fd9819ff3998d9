// SPDX-License-Identifier: Apache-2.0
// The intention of `train` on this host: a value made by pure functions, printed by `--plan` and
// carried out by job/run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/job_outline.h"
#include "entrypoint/plan/partition_outlook.h"
#include "entrypoint/plan/planned_command.h"

namespace entrypoint {

/// The check before the start (SM_LAUNCH_CHECK): the module smdistributed.check, which the job's
/// runner starts as it will start the script.
struct StartCheck {
  std::vector<std::string> argv;
  bool fails_job = false;  ///< or what it finds is only told
};

struct LaunchPlan {
  JobOutline outline;
  EntryPoint entry;
  PlannedCommand command;
  std::optional<StartCheck> check;            ///< none: the job starts unchecked
  std::vector<PlannedFile> files;             ///< written before the start
  std::optional<PartitionOutlook> partition;  ///< in a plan to be shown
  std::vector<std::string> notes;             ///< decisions worth a line in the log
  std::vector<std::string> warnings;          ///< one line each, said once at start
};

/// The plan of a job whose code is in its folder, and of one whose code is not fetched yet as far
/// as its name tells. Pure. Throws ConfigError for a job that cannot run: no or a forbidden entry
/// point, one that the runner cannot start.
LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts, JobOutline outline);

/// The same, outline included.
LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts);

/// The plan of the ranks' next start by torchrun on several hosts: they meet at a port beside that
/// of the last start, so that a host that is early does not join ranks of it which have not ended
/// elsewhere. Pure.
LaunchPlan plan_next_start(const JobConfig& job, const HostFacts& facts, JobOutline outline);

/// A job that goes on without hosts which it has lost.
struct SmallerJob {
  JobConfig job;
  LaunchPlan plan;
};

/// `job`, whose ranks were started again `restarts` times, without the hosts `lost`, with its code
/// as it is. Pure. Throws ConfigError, with the reason, where it cannot go on: no restart or too
/// few hosts are left, or the degrees do not fit them.
SmallerJob plan_without_hosts(const JobConfig& job, const HostFacts& facts,
                              const std::vector<std::string>& lost, std::int64_t restarts);

/// The job of `train --check`: hosts, processes and network of `job`, with the check in place of
/// the script, its arguments, its packages and its report. Any outlier fails it. `as_json`: it
/// prints its numbers as one line of JSON.
JobConfig make_check_job(JobConfig job, bool as_json = false);

}  // namespace entrypoint
