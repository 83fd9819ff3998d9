// SPDX-License-Identifier: Apache-2.0
// Decisions on a job that do not depend on its code, made before the code is there.
#pragma once

#include <optional>
#include <string>

#include "entrypoint/config/aws_location.h"
#include "entrypoint/config/job_config.h"
#include "entrypoint/plan/arguments.h"
#include "entrypoint/plan/host_facts.h"
#include "entrypoint/plan/job_network.h"
#include "entrypoint/plan/mpi_options.h"
#include "entrypoint/plan/parallel_check.h"
#include "entrypoint/plan/program_environment.h"
#include "entrypoint/plan/runner_choice.h"
#include "entrypoint/plan/transfers.h"
#include "opt_ml_layout/outputs.h"

namespace entrypoint {

struct JobOutline {
  std::string cluster;  ///< whose engine started the job, and why it is taken for it; or empty
  RunnerChoice runner;
  JobNetwork network;
  UserArguments arguments;
  CodeSource code;
  std::optional<ExtraCertificates> certificates;        ///< joined before anything is fetched
  std::optional<PackageRepository> package_repository;  ///< none: pip as it is configured
  opt_ml::CheckpointPlace checkpoints;
  std::optional<OutputTarget> intermediate_output;  ///< uploaded while the job runs
  ParallelSettings parallel;
  CustomMpiOptions mpi_options;
  RankLayout ranks;
  ProgramEnvironment environment;
};

/// Pure: the same job and facts give the same outline on every host of the job, roles and host
/// variables aside. Throws ConfigError for a job that cannot run whatever its code is, so that
/// nothing is downloaded for it: a runner that is not available, an entry point whose name cannot
/// be one, no Python where the script needs one, parallel settings that contradict each other or
/// the number of processes.
JobOutline outline_job(const JobConfig& job, const HostFacts& facts);

}  // namespace entrypoint
