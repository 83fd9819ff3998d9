// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/job_runner.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "entrypoint/runners/child_environment.h"
#include "entrypoint/runners/mpi_master.h"
#include "entrypoint/runners/mpi_worker.h"
#include "entrypoint/runners/rank_exec.h"
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

class LocalRunner final : public JobRunner {
 public:
  LocalRunner(const JobOutline& outline, JobSettings settings, ProcessRunner& processes)
      : outline_(outline), settings_(std::move(settings)), processes_(processes) {}

  Outcome run(const std::vector<std::string>& argv) override {
    const Command command = command_for(
        outline_, settings_, argv, planned_environment(outline_.environment, settings_.inherited));
    if (outline_.runner.kind == Runner::kTorchrun) return run_torchrun(processes_, command);
    return {.status = run_to_end(processes_, processes_.start(command)), .command = argv};
  }

 private:
  const JobOutline& outline_;
  JobSettings settings_;
  ProcessRunner& processes_;
};

}  // namespace

std::unique_ptr<JobRunner> make_runner(const JobOutline& outline, JobSettings settings,
                                       ProcessRunner& processes) {
  if (!outline.runner.spans_hosts()) {
    return std::make_unique<LocalRunner>(outline, std::move(settings), processes);
  }
  if (outline.runner.role == Role::kMaster) {
    return std::make_unique<MpiMaster>(outline, std::move(settings), processes);
  }
  return std::make_unique<MpiWorker>(outline, std::move(settings), processes);
}

Command command_for(const JobOutline& outline, const JobSettings& settings,
                    const std::vector<std::string>& argv, std::vector<std::string> environment) {
  const Runner runner = outline.runner.kind;
  const bool is_mpirun = outline.runner.runs_mpirun();
  return Command{.name = program_name(runner),
                 .argv = argv,
                 .environment = std::move(environment),
                 .working_directory = outline.code.folder,
                 .output = Output::kStream,
                 .on_stop = stop_steps(runner, settings.stop_after),
                 // torchrun would die of them
                 .forwards_user_signals = runner != Runner::kTorchrun,
                 .sigusr1_as = is_mpirun ? kUserSignal1OverMpi : SIGUSR1,
                 .ignored_signals = is_mpirun ? signals_for_ranks() : std::vector<int>{}};
}

std::vector<StopStep> stop_steps(Runner runner, std::chrono::milliseconds stop_after) {
  constexpr std::chrono::milliseconds kForStarter{5000};
  using std::chrono::milliseconds;
  if (runner == Runner::kProcess || runner == Runner::kTrainingModule) {
    return {{.after = milliseconds(0), .signal = StopStep::kForward},
            {.after = stop_after, .signal = SIGKILL}};
  }
  const milliseconds term = std::max(stop_after / 2, stop_after - kForStarter);
  std::vector<StopStep> steps = {{.after = term, .signal = SIGTERM},
                                 {.after = stop_after, .signal = SIGKILL}};
  if (runner == Runner::kTorchrun) return steps;
  // mpirun forwards to the ranks that it knows of: while they start, the stop would be lost. A
  // shim passes one stop only, so saying it again does no harm.
  std::vector<StopStep> stops = {{.after = milliseconds(0), .signal = SIGUSR1}};
  for (milliseconds after(500); after < term; after *= 2) {
    stops.push_back({.after = after, .signal = SIGUSR1});
  }
  steps.insert(steps.begin(), stops.begin(), stops.end());
  return steps;
}

ExitStatus run_to_end(ProcessRunner& processes, ChildId child) {
  while (!processes.ended(child)) processes.wait(kNever);
  return *processes.ended(child);
}

ExitStatus stopped_status(const ProcessRunner& processes) {
  return ExitStatus{.code = 0, .signal = processes.stop_signal()};
}

}  // namespace entrypoint
