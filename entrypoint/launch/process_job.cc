// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/launch/process_job.h"

#include "entrypoint/launch/child_environment.h"

namespace entrypoint::launch {

Command planned_command(const LaunchPlan& plan, const JobSettings& settings,
                        std::vector<std::string> environment) {
  return Command{.name = plan.runner == Runner::kMpi ? "mpirun" : "the user's script",
                 .argv = plan.argv,
                 .environment = std::move(environment),
                 .working_directory = plan.working_directory,
                 .output = Output::kStream,
                 .on_stop = stop_steps(plan.runner, settings.stop_after),
                 // Under MPI SIGUSR1 is taken: it is how ranks are stopped.
                 .forwards_user_signals = plan.runner == Runner::kProcess};
}

Outcome ProcessJob::run() {
  const ChildId child = runner_.start(
      planned_command(plan_, settings_, planned_environment(plan_, settings_.inherited)));
  return {.status = run_to_end(runner_, child), .command = plan_.argv};
}

}  // namespace entrypoint::launch
