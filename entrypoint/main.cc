// SPDX-License-Identifier: Apache-2.0
// `train`: read, plan, launch, supervise.
#include <exception>
#include <iostream>
#include <utility>

#include "entrypoint/config/command_line.h"
#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/job/ending.h"
#include "entrypoint/job/run.h"
#include "entrypoint/job/subcommands.h"
#include "entrypoint/plan/plan_report.h"
#include "entrypoint/plan/start_check.h"
#include "entrypoint/ssh/host_gathering.h"

namespace entrypoint {
namespace {

/// A plan asks nobody.
FindHosts find_hosts(bool only_plans, Supervisor& supervisor) {
  if (only_plans) return nullptr;
  return [&supervisor](const ClusterJob& cluster, const LaunchOptions& options) {
    return gather_hosts(cluster, options, supervisor);
  };
}

int train(const CommandLine& line) {
  const EnvironmentMap environment = smp::read_variables();
  const opt_ml::Layout layout = find_layout(environment);
  const bool only_plans = line.action == Action::kPlan;
  bool runs = false;
  try {
    Supervisor supervisor;  // first: it blocks the signals for all that follows
    JobConfig job = read_job_config(layout, environment, find_hosts(only_plans, supervisor));
    if (line.action == Action::kCheck) job = make_check_job(std::move(job));
    speak_as_the_launcher(job.log_level);
    const HostFacts facts = probe_host(job);
    const LaunchPlan plan = make_launch_plan(job, facts);
    runs = !only_plans && !job.options.dry_run;
    if (runs) return run_job(std::move(job), facts, plan, supervisor);
    std::cout << (only_plans && !line.json ? plan_text(plan) : plan_json(plan));
    return 0;
  } catch (const std::exception& error) {
    if (only_plans) return complain(error);
    if (!runs) remove_old_markers(layout);
    return publish(layout, report_error(error));
  }
}

}  // namespace
}  // namespace entrypoint

int main(int argc, char** argv) {
  using entrypoint::Action;
  entrypoint::speak_as_the_launcher();
  try {
    const entrypoint::CommandLine line = entrypoint::parse_command_line(argc, argv);
    const bool runs_job = line.action == Action::kTrain || line.action == Action::kCheck ||
                          line.action == Action::kPlan;
    return runs_job ? entrypoint::train(line) : entrypoint::run_side_action(line);
  } catch (const std::exception& error) {
    return entrypoint::complain(error);
  }
}
