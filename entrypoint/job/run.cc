// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/run.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>

#include <fmt/ranges.h>

#include "entrypoint/doctor/temporary_folder.h"
#include "entrypoint/fetch/code_fetch.h"
#include "entrypoint/fetch/output_sync.h"
#include "entrypoint/job/certificates.h"
#include "entrypoint/job/ending.h"
#include "entrypoint/job/failure/cause.h"
#include "entrypoint/job/failure/memory_events.h"
#include "entrypoint/job/preparation.h"
#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/runner_choice.h"
#include "entrypoint/plan/shared_memory.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/report/host_samples.h"
#include "entrypoint/report/report_command.h"
#include "entrypoint/report/told_steps.h"
#include "entrypoint/runners/job_runner.h"
#include "entrypoint/ssh/host_records.h"
#include "entrypoint/ssh/sshd.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

// What the job left behind gets this long to end by itself.
constexpr std::chrono::milliseconds kSweepGrace{2000};
// Files on other hosts are written by other clocks.
constexpr std::chrono::seconds kClockMargin{10};

/// As botocore, we read AWS_CA_BUNDLE.
fetch::TransferSettings transfer_settings(const JobConfig& job, const LaunchPlan& plan) {
  fetch::TransferSettings transfer{.environment = job.environment, .job_region = job.region};
  if (const std::string* bundle = find_variable(plan.environment, "AWS_CA_BUNDLE")) {
    transfer.environment["AWS_CA_BUNDLE"] = *bundle;
  }
  return transfer;
}

JobSettings settings_of(const JobConfig& job, const LaunchPlan& plan) {
  JobSettings settings{
      .stop_after = job.options.stop_after,
      .worker_timeout = job.options.worker_timeout,
      .ssh_port = job.options.ssh_port != 0 ? job.options.ssh_port : default_ssh_port(),
      .ssh_key = job.options.ssh_key,
      .job_name = job.training_job_name.value_or(""),
      .cluster_job = job.shares_hosts() ? smp::cluster::job_number(job.environment) : "",
      .wait_for_names =
          !opt_ml::parse_switch(value_or(job.environment, "SM_STUDIO_LOCAL_MODE")).value_or(false),
      .inherited = current_environment()};
  for (const Interface& interface : list_interfaces()) {
    if (interface.name == plan.interface_name) {
      settings.listen_addresses = interface.listen_addresses();
    }
  }
  return settings;
}

/// Log readers search for some of these lines: they are the reference's, word by word.
void introduce(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan) {
  if (facts.num_gpus == 0) SMP_LOG(info, "No GPUs detected (normal if no gpus installed)");
  SMP_LOG(info, "train {}: cpus={} gpus={} neurons={}", SMP_VERSION, facts.num_cpus, facts.num_gpus,
          facts.num_neurons);
  if (!job.hyperparameters.not_json.empty()) {
    SMP_LOG(debug, "Hyperparameters that are text and not JSON: {}",
            fmt::join(job.hyperparameters.not_json, ", "));
  }
  if (job.framework_module) {
    const std::string& module = *job.framework_module;
    SMP_LOG(info, "Imported framework {}", module.substr(0, module.find(':')));
  }
  if (plan.runner == Runner::kSmddp) SMP_LOG(info, "Invoking SMDataParallel");
  if (plan.runner == Runner::kTorchrun) SMP_LOG(info, "Invoking TorchDistributed...");
  if (job.framework_module && plan.runner != Runner::kTrainingModule) {
    SMP_LOG(info, "Invoking user training script.");
  }
  if (!plan.cluster.empty()) SMP_LOG(info, "Cluster: {}", plan.cluster);
  SMP_LOG(info, "Runner: {}", plan.reason);
  for (const std::string& note : plan.notes) SMP_LOG(info, "{}", note);
  for (const std::string& warning : plan.warnings) SMP_LOG(warning, "{}", warning);
}

bool is_tolerated(const JobConfig& job, const Outcome& outcome, const OutputRecord& record) {
  const bool is_pytorch = job.framework_module && *job.framework_module == kPyTorchModule;
  if (!is_pytorch || !job.options.tolerate_gloo_abort || !is_gloo_abort(outcome.status, record)) {
    return false;
  }
  SMP_LOG(warning,
          "Known exception: the script was aborted by gloo::EnforceNotMet, which counts as its "
          "end; SM_LAUNCH_TOLERATE_GLOO_ABORT=0 makes it a failure");
  return true;
}

/// Entry point and installation depend on what the code folder holds.
LaunchPlan plan_with_code(JobConfig& job, const HostFacts& facts) {
  job.code = look_into_code(job.layout, job.entry_point, job.environment);
  job.code.fetched = true;
  return make_launch_plan(job, facts);
}

Report run_planned(JobConfig& job, const HostFacts& facts, LaunchPlan& plan,
                   const JobSettings& settings, const fetch::TransferSettings& transfer,
                   std::unique_ptr<Job>& launched, const OutputRecord& record,
                   Supervisor& supervisor) {
  ReportContext context{.policy = job.options.exit,
                        .oom_kills_before = oom_kills(),
                        .folders = {job.layout.base(), job.layout.output(), "/tmp"},
                        .channels = job.channels.sorted_names(),
                        .ranks = plan.ranks,
                        .runs_mpirun = plan.runs_mpirun(),
                        .shared_memory = shared_memory_text(facts),
                        .debugger = value_or(job.environment, "USE_SMDEBUG") != "0",
                        .secrets = SecretValues(plan, settings.inherited)};
  try {
    if (plan.certificates) join_certificates(*plan.certificates);
    std::optional<Outcome> outcome;
    if (plan.code.is_fetched() &&
        !fetch::fetch_code(plan.code, plan.working_directory, transfer, supervisor)) {
      outcome = Outcome{.status = stopped_status(supervisor), .command = plan.user_command};
    }
    if (!outcome) {
      if (plan.code.is_fetched()) plan = plan_with_code(job, facts);
      context.module = job.code.entry_point_module;
      introduce(job, facts, plan);
      outcome = prepare(plan, settings, transfer, supervisor);
    }
    if (!outcome) {
      launched = make_job(plan, settings, supervisor);
      log_invocation(plan);
      outcome = launched->run();
      if (is_tolerated(job, *outcome, record)) outcome->status = {};
      // Open MPI 5 may end with 0 where it lost a host.
      const bool lost_host = plan.runs_mpirun() && !record.reports().lost_host().empty();
      if (outcome->status.ok() && lost_host) outcome->status.code = 1;
    }
    return report_outcome(*outcome, supervisor, record, context);
  } catch (const std::exception& error) {
    return report_error(error, context);
  }
}

/// Hosts that rely on each other learn it also when this one never came to its job.
void announce(std::unique_ptr<Job>& launched, const LaunchPlan& plan, const JobSettings& settings,
              const Report& report, Supervisor& supervisor) {
  try {
    if (!launched && supervisor.stop_signal() == 0) {
      launched = make_job(plan, settings, supervisor);
    }
    if (launched) {
      launched->announce({.exit_code = report.exit_code, .failure_text = report.failure_text});
    }
  } catch (const std::exception& error) {
    SMP_LOG(warning, "the other hosts cannot be told: {}", error.what());
  }
}

/// What the host is busy with is recorded beside the ranks' records, until it is killed.
std::optional<ChildId> start_sampler(const JobConfig& job, const LaunchPlan& plan,
                                     Supervisor& supervisor) {
  if (!job.options.report) return std::nullopt;
  return supervisor.start(HelperProcess{
      .name = "sample host", .work = [folder = records_folder(plan), host = job.current_host()] {
        report::sample_host_for_ever(folder, host);
        return std::string();
      }});
}

/// What the script tells of its steps, for the report of one that does not use smp.
std::shared_ptr<report::StepLog> watch_steps(const JobConfig& job, const LaunchPlan& plan,
                                             OutputRecord& record) {
  if (!job.options.report) return nullptr;
  auto log = std::make_shared<report::StepLog>(records_folder(plan), job.current_host());
  record.watch([log](int rank, std::string_view line) { log->add(rank, line); });
  return log;
}

/// One host says what the job was like, from what all of them recorded. A report that cannot be
/// written is not worth a job.
void write_job_report(const JobConfig& job, const LaunchPlan& plan, const Report& ended,
                      std::filesystem::file_time_type began, const OutputRecord& record) {
  report::JobEnd end{.exit_code = ended.exit_code, .failure = ended.failure_text};
  if (end.exit_code != 0) {
    const auto& lines = record.lines(StreamKind::kErr);
    end.last_lines.assign(lines.begin(), lines.end());
  }
  report::ReportRequest request{.folders = {records_folder(plan)},
                                .page = job.layout.output_data() / "report.html",
                                .since = began - kClockMargin,
                                .end = std::move(end)};
  if (const std::string metrics = value_or(job.environment, "SMP_METRICS");
      std::filesystem::is_regular_file(metrics)) {
    request.folders.emplace_back(metrics);
  }
  try {
    const std::string verdict = report::write_report(request);
    if (ended.exit_code == 0 && !verdict.empty()) SMP_LOG(info, "{}", verdict);
    SMP_LOG(info, "The report of the job: {}", request.page.string());
  } catch (const std::exception& error) {
    SMP_LOG(warning, "There is no report of the job: {}", error.what());
  }
}

bool holds_bytes(const std::filesystem::path& folder) {
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder, unreadable)) {
    std::error_code gone;
    if (entry.is_regular_file(gone) && entry.file_size(gone) > 0 && !gone) return true;
  }
  return static_cast<bool>(unreadable);
}

std::string new_files(const std::filesystem::path& folder, std::filesystem::file_time_type since) {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> names;
  std::error_code unreadable;
  for (const auto& entry : std::filesystem::directory_iterator(folder, unreadable)) {
    std::error_code gone;
    const bool is_new = entry.is_regular_file(gone) && entry.last_write_time(gone) >= since;
    if (is_new && !gone && names.size() < kNamed) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names.empty() ? std::string()
                       : fmt::format("; new in {}: {}", folder.string(), fmt::join(names, ", "));
}

/// The service uploads an empty model, which is found when it is deployed.
void tell_of_empty_model(const JobConfig& job, const LaunchPlan& plan,
                         std::filesystem::file_time_type began) {
  if (!job.is_master() || holds_bytes(job.layout.model())) return;
  SMP_LOG(warning, "The script wrote nothing into SM_MODEL_DIR ({}): the job's model is empty{}",
          job.layout.model().string(), new_files(plan.working_directory, began));
}

/// A shell script goes on after a command that failed, and so ends well.
void tell_of_hidden_error(const JobConfig& job, const LaunchPlan& plan, const OutputRecord& record,
                          const SecretValues& secrets) {
  const bool is_python = plan.entry_point_kind == EntryPointKind::kProgram;
  const auto error = hidden_error(record, is_python ? job.entry_point : "");
  if (!error) return;
  SMP_LOG(warning,
          "the script ended with 0, and its output has an uncaught error: {}; in shell scripts use "
          "set -eo pipefail",
          secrets.mask(*error));
}

void tell_of_left_processes(const Supervisor& supervisor, const SecretValues& secrets) {
  if (supervisor.stop_signal() != 0) return;  // the stop ended the script alone
  const std::string text = left_processes_text(supervisor.left_processes());
  if (!text.empty()) SMP_LOG(warning, "{}", secrets.mask(text));
}

}  // namespace

int run_job(JobConfig job, const HostFacts& facts, LaunchPlan plan, Supervisor& supervisor) {
  opt_ml::create_job_folders(job.layout);
  opt_ml::try_job_folders(job.layout);
  if (plan.runs_mpirun()) try_temporary_folder(plan.argv, job.environment);
  remove_old_markers(job.layout);
  const auto began = std::filesystem::file_time_type::clock::now();
  supervisor.merge_streams(job.options.merge);
  OutputRecord record;
  supervisor.watch_output([&record](StreamKind kind, const RankTag* tag, std::string_view piece) {
    record.add(kind, tag, piece);
  });
  if (plan.runs_mpirun()) {
    record.expect_mpirun();
    const TagEnd end = facts.has_prterun ? TagEnd::kSpace : TagEnd::kColon;
    supervisor.set_rank_tags(RankTags(plan.hosts, plan.processes_per_host, end));
  }
  const JobSettings settings = settings_of(job, plan);
  const fetch::TransferSettings transfer = transfer_settings(job, plan);

  fetch::OutputSync output_sync(plan.intermediate_output, job.layout, transfer, supervisor);
  std::unique_ptr<Job> launched;
  const std::optional<ChildId> sampler = start_sampler(job, plan, supervisor);
  const std::shared_ptr<report::StepLog> step_log = watch_steps(job, plan, record);
  Report ended = run_planned(job, facts, plan, settings, transfer, launched, record, supervisor);
  if (sampler) supervisor.send(*sampler, SIGKILL);
  // Our own marker first: where the first container to end stops all others, a worker that was
  // told ends at once.
  ended.exit_code = publish(job.layout, ended);
  const SecretValues secrets(plan, settings.inherited);
  if (ended.exit_code == 0) {
    tell_of_hidden_error(job, plan, record, secrets);
    tell_of_empty_model(job, plan, began);
  }
  if (job.options.report && job.is_master()) {
    if (launched && supervisor.stop_signal() == 0) launched->collect_records();
    step_log->flush();
    write_job_report(job, plan, ended, began, record);
  }
  announce(launched, plan, settings, ended, supervisor);
  output_sync.finish();
  const auto grace_end = Clock::now() + job.options.grace;
  while (supervisor.stop_signal() == 0 && supervisor.wait(grace_end) != Wake::kDeadline) {
  }
  tell_of_left_processes(supervisor, secrets);
  supervisor.sweep(kSweepGrace);
  return ended.exit_code;
}

}  // namespace entrypoint
