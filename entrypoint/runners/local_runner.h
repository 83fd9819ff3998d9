// SPDX-License-Identifier: Apache-2.0
// One command on this host: the user's program, torchrun, or mpirun with all its ranks here. Needs
// no sshd and no key.
#pragma once

#include "entrypoint/runners/job_runner.h"

namespace entrypoint {

class ProcessJob final : public Job {
 public:
  ProcessJob(const LaunchPlan& plan, JobSettings settings, ProcessRunner& runner)
      : plan_(plan), settings_(std::move(settings)), runner_(runner) {}

  Outcome run() override;

 private:
  const LaunchPlan& plan_;
  JobSettings settings_;
  ProcessRunner& runner_;
};

/// The plan's command as the runner takes it. `environment` is complete.
Command planned_command(const LaunchPlan& plan, const JobSettings& settings,
                        std::vector<std::string> environment);

}  // namespace entrypoint
