// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/supervise/job_run.h"

#include <algorithm>
#include <filesystem>

#include "entrypoint/launch/job.h"
#include "entrypoint/launch/preparation.h"
#include "entrypoint/launch/spawn.h"
#include "entrypoint/launch/sshd.h"
#include "entrypoint/supervise/memory_events.h"
#include "entrypoint/supervise/report.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/core/log.h"

namespace entrypoint::supervise {
namespace {

// What the job left behind gets this long to end by itself.
constexpr std::chrono::milliseconds kSweepGrace{2000};

launch::JobSettings settings_of(const JobConfig& job, const LaunchPlan& plan) {
  launch::JobSettings settings{
      .stop_after = job.knobs.stop_after,
      .worker_timeout = job.knobs.worker_timeout,
      .ssh_port = job.knobs.ssh_port != 0 ? job.knobs.ssh_port : launch::default_ssh_port(),
      .ssh_key = job.knobs.ssh_key,
      .job_name = job.training_job_name.value_or(""),
      .wait_for_names =
          !opt_ml::parse_switch(value_or(job.environment, "SM_STUDIO_LOCAL_MODE")).value_or(false),
      .inherited = launch::current_environment()};
  for (const Interface& interface : list_interfaces()) {
    if (interface.name == plan.interface_name) settings.listen_addresses = interface.addresses;
  }
  return settings;
}

void introduce(const LaunchPlan& plan) {
  SMP_LOG(info, "Runner: {}", plan.reason);
  for (const std::string& note : plan.notes) SMP_LOG(info, "{}", note);
  for (const std::string& warning : plan.warnings) SMP_LOG(warning, "{}", warning);
}

void clear_marker_of_an_earlier_run(const opt_ml::Layout& layout) {
  std::error_code ignored;
  std::filesystem::remove(layout.success_marker(), ignored);
  if (std::filesystem::exists(layout.failure_marker(), ignored)) {
    SMP_LOG(warning, "{} is there before the job starts and will be kept",
            layout.failure_marker().string());
  }
}

Report run_planned(const JobConfig& job, const LaunchPlan& plan,
                   const launch::JobSettings& settings, std::unique_ptr<launch::Job>& launched,
                   Supervisor& supervisor) {
  const std::optional<long> oom_kills_before = oom_kills();
  try {
    auto outcome = launch::prepare(plan, settings, supervisor);
    if (!outcome) {
      launched = launch::make_job(plan, settings, supervisor);
      launch::log_invocation(plan);
      outcome = launched->run();
    }
    return report_outcome(*outcome, supervisor, job.knobs.exit, oom_kills_before);
  } catch (const std::exception& error) {
    return report_error(error);
  }
}

}  // namespace

int run_job(const JobConfig& job, const LaunchPlan& plan, Supervisor& supervisor) {
  introduce(plan);
  opt_ml::create_job_folders(job.layout);
  clear_marker_of_an_earlier_run(job.layout);
  supervisor.merge_streams(job.knobs.merge);
  if (plan.runner == Runner::kMpi) {
    supervisor.set_rank_tags(RankTags(plan.hosts, plan.processes_per_host));
  }
  const launch::JobSettings settings = settings_of(job, plan);

  std::unique_ptr<launch::Job> launched;
  const Report report = run_planned(job, plan, settings, launched, supervisor);
  // Our own marker first: where the first container to end stops all others, a worker that was
  // told ends at once.
  const int exit_code = publish(job.layout, report);
  if (launched) {
    launched->announce({.exit_code = exit_code, .failure_text = report.failure_text});
  }
  const auto grace_end = launch::Clock::now() + job.knobs.grace;
  while (supervisor.stop_signal() == 0 && supervisor.wait(grace_end) != launch::Wake::kDeadline) {
  }
  supervisor.sweep(kSweepGrace);
  return exit_code;
}

}  // namespace entrypoint::supervise
