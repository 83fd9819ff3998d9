// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/job_runner.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/runners/mpi_master.h"
#include "entrypoint/runners/mpi_worker.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

class LocalRunner final : public JobRunner {
 public:
  LocalRunner(const JobOutline& outline, JobSettings settings, ProcessRunner& processes)
      : outline_(outline), settings_(std::move(settings)), processes_(processes) {}

  Outcome run(const std::vector<std::string>& argv) override {
    std::vector<std::string> environment =
        planned_environment(outline_.environment, settings_.inherited);
    // Other hosts would not know one that is drawn here.
    const RunnerChoice& runner = outline_.runner;
    if (runner.starts_ranks() && runner.hosts.size() == 1 && !settings_.secret) {
      set_variable(environment, smp::kSecretVariable, smp::JobSecret::draw().text());
    }
    const Command command = command_for(outline_, settings_, argv, std::move(environment));
    if (runner.kind == Runner::kTorchrun) return run_torchrun(processes_, command);
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

ExitStatus run_to_end(ProcessRunner& processes, ChildId child) {
  while (!processes.ended(child)) processes.wait(kNever);
  return *processes.ended(child);
}

ExitStatus stopped_status(const ProcessRunner& processes) {
  return ExitStatus{.code = 0, .signal = processes.stop_signal()};
}

std::vector<pid_t> torchrun_workers(pid_t root) {
  std::vector<pid_t> ours;  // process groups that we started
  std::vector<pid_t> workers;
  for (const Process& process : descendants(root)) {
    if (process.zombie) continue;
    const bool leads = getpgid(process.pid) == process.pid;
    if (process.parent == root) {
      if (leads) ours.push_back(process.pid);
    } else if (leads && std::ranges::find(ours, getpgid(process.parent)) != ours.end()) {
      workers.push_back(process.pid);
    }
  }
  return workers;
}

Outcome run_torchrun(ProcessRunner& runner, const Command& command) {
  const ChildId torchrun = runner.start(command);
  bool told = false;
  // No deadline: training takes what it takes, and a stop brings its own steps.
  while (!runner.ended(torchrun)) {
    const Wake wake = runner.wait(kNever);
    if (wake == Wake::kUserSignal) {
      for (const pid_t worker : torchrun_workers(getpid())) kill(-worker, runner.user_signal());
    }
    if (wake != Wake::kStopRequested || told) continue;
    told = true;  // once, however many stops arrive
    const std::vector<pid_t> workers = torchrun_workers(getpid());
    if (workers.empty()) runner.send(torchrun, runner.stop_signal());
    for (const pid_t worker : workers) kill(-worker, runner.stop_signal());
    SMP_LOG(info, "Told {} workers of torchrun to stop", workers.size());
  }
  return {.status = *runner.ended(torchrun), .command = command.argv};
}

}  // namespace entrypoint
