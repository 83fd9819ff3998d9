// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/job_runner.h"

#include <algorithm>
#include <csignal>

#include "entrypoint/runners/local_runner.h"
#include "entrypoint/runners/mpi_master.h"
#include "entrypoint/runners/mpi_worker.h"

namespace entrypoint {

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

std::unique_ptr<Job> make_job(const LaunchPlan& plan, JobSettings settings,
                              ProcessRunner& processes) {
  if (!plan.spans_hosts()) {
    return std::make_unique<ProcessJob>(plan, std::move(settings), processes);
  }
  if (plan.role == Role::kMaster) {
    return std::make_unique<MpiMaster>(plan, std::move(settings), processes);
  }
  return std::make_unique<MpiWorker>(plan, std::move(settings), processes);
}

}  // namespace entrypoint
