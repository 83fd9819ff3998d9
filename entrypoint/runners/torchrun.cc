// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/torchrun.h"

#include <algorithm>
#include <csignal>

#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {

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
