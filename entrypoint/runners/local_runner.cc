// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/local_runner.h"

#include <csignal>

#include "entrypoint/runners/child_environment.h"
#include "entrypoint/runners/rank_exec.h"
#include "entrypoint/runners/start_check.h"
#include "entrypoint/runners/torchrun.h"

namespace entrypoint {

namespace {

std::string program_name(Runner runner) {
  switch (runner) {
    case Runner::kMpi:
    case Runner::kSmddp:
      return "mpirun";
    case Runner::kTorchrun:
      return "torchrun";
    case Runner::kTrainingModule:
      return "the training module";
    case Runner::kProcess:
      break;
  }
  return "the user's script";
}

// mpirun forwards these. Outside of its time for that, while it starts or its ranks have ended well
// and it clears up, one would kill it; libevent gives back what was there before its own handlers.
std::vector<int> signals_for_ranks() { return {SIGUSR1, SIGUSR2, kUserSignal1OverMpi}; }

}  // namespace

Command planned_command(const LaunchPlan& plan, const JobSettings& settings,
                        std::vector<std::string> environment) {
  return Command{
      .name = program_name(plan.runner),
      .argv = plan.argv,
      .environment = std::move(environment),
      .working_directory = plan.working_directory,
      .output = Output::kStream,
      .on_stop = stop_steps(plan.runner, settings.stop_after),
      .forwards_user_signals = plan.runner != Runner::kTorchrun,  // torchrun would die of them
      .sigusr1_as = plan.runs_mpirun() ? kUserSignal1OverMpi : SIGUSR1,
      .ignored_signals = plan.runs_mpirun() ? signals_for_ranks() : std::vector<int>{}};
}

Outcome ProcessJob::run() {
  const auto run = [this](const Command& command) -> Outcome {
    if (plan_.runner == Runner::kTorchrun) return run_torchrun(runner_, command);
    return {.status = run_to_end(runner_, runner_.start(command)), .command = command.argv};
  };
  return run_checked(
      plan_, planned_command(plan_, settings_, planned_environment(plan_, settings_.inherited)),
      runner_, run);
}

}  // namespace entrypoint
