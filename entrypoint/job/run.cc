// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/run.h"

#include <algorithm>
#include <csignal>
#include <exception>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/ranges.h>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/fetch/code_fetch.h"
#include "entrypoint/fetch/output_sync.h"
#include "entrypoint/job/ending.h"
#include "entrypoint/job/failure/cause.h"
#include "entrypoint/job/job_recorder.h"
#include "entrypoint/job/preparation.h"
#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/launch_plan.h"
#include "entrypoint/plan/plan_report.h"
#include "entrypoint/process/launch_folder.h"
#include "entrypoint/runners/job_runner.h"
#include "entrypoint/ssh/node_report.h"
#include "entrypoint/ssh/sshd.h"
#include "opt_ml_layout/outputs.h"
#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

// Time for processes that the job left behind to end by themselves.
constexpr std::chrono::milliseconds kSweepGrace{2000};
constexpr int kStopped = 128 + SIGTERM;  // of a script that has heard a stop, on whichever host
constexpr const char* kMemoryFolder = "SMP_MEMORY_FOLDER";

fetch::TransferSettings transfer_settings(const JobConfig& job, const JobOutline& outline) {
  fetch::TransferSettings transfer{
      .environment = job.environment,
      .job_region = job.region,
      .limits = {.bytes = job.options.code_max_bytes, .members = job.options.code_max_files}};
  // As botocore does.
  if (const std::string* bundle = find_variable(outline.environment.variables, "AWS_CA_BUNDLE")) {
    transfer.environment["AWS_CA_BUNDLE"] = *bundle;
  }
  return transfer;
}

JobSettings settings_of(const JobConfig& job, const JobOutline& outline) {
  JobSettings settings{
      .stop_after = job.options.stop_after,
      .worker_timeout = job.options.worker_timeout,
      .ssh_port = job.options.ssh_port != 0 ? job.options.ssh_port : default_ssh_port(),
      .ssh_key = job.options.ssh_key,
      .secret = job.files.secret,
      .job_name = job.training_job_name.value_or(""),
      .cluster_job = job.shares_hosts() ? smp::cluster::job_number(job.environment) : "",
      .wait_for_names =
          !opt_ml::parse_switch(smp::value_or(job.environment, "SM_STUDIO_LOCAL_MODE"))
               .value_or(false),
      .inherited = current_environment()};
  for (const Interface& interface : list_interfaces()) {
    settings.own_addresses.insert(settings.own_addresses.end(), interface.addresses.begin(),
                                  interface.addresses.end());
    if (interface.name == outline.network.interface_name) {
      settings.listen_addresses = interface.listen_addresses();
    }
  }
  return settings;
}

bool is_tolerated(const JobConfig& job, const Outcome& outcome, const OutputRecord& output) {
  const bool is_pytorch =
      job.program.framework_module && *job.program.framework_module == kPyTorchModule;
  if (!is_pytorch || !job.options.tolerate_gloo_abort || !is_gloo_abort(outcome.status, output)) {
    return false;
  }
  SMP_LOG(warning,
          "Known exception: the script was aborted by gloo::EnforceNotMet, which counts as its "
          "end; SM_LAUNCH_TOLERATE_GLOO_ABORT=0 makes it a failure");
  return true;
}

void warn_of_left_processes(const Supervisor& processes) {
  if (processes.stop_signal() != 0) return;  // the stop ended the script alone
  const std::string text = left_processes_text(processes.left_processes());
  if (!text.empty()) SMP_LOG(warning, "{}", text);
}

class JobRun {
 public:
  /// Throws ConfigError for a job that is known to be none before anything is done for it.
  JobRun(JobConfig job, const HostFacts& facts, Supervisor& processes, const Secrets& secrets)
      : job_(std::move(job)),
        facts_(facts),
        processes_(processes),
        secrets_(secrets),
        outline_(outline_job(job_, facts_)),
        settings_(settings_of(job_, outline_)),
        transfer_(transfer_settings(job_, outline_)) {
    if (!outline_.code.is_fetched()) plan_ = make_launch_plan(job_, facts_, outline_);
  }

  /// Returns the exit status of `train`.
  int to_end();

 private:
  void prepare_host();
  void give_memory_folder();
  void expect_ranks();
  std::optional<Outcome> fetch_code();
  Outcome run_program();
  Outcome run_with_restarts();
  bool go_on_without_lost(const std::string& reported, std::int64_t restarts);
  JobStatus run_plan();
  void announce(const JobStatus& status);

  JobConfig job_;
  const HostFacts& facts_;
  Supervisor& processes_;
  const Secrets& secrets_;
  JobOutline outline_;
  JobSettings settings_;
  fetch::TransferSettings transfer_;
  OutputRecord output_;
  std::optional<LaunchPlan> plan_;      ///< none while the code is not there
  std::optional<LaunchFolder> memory_;  ///< of what ranks keep for their next start
  std::unique_ptr<JobRunner> runner_;
};

void JobRun::prepare_host() {
  opt_ml::create_job_folders(job_.layout);
  opt_ml::try_job_folders(job_.layout, job_.files.checkpoints.folder);
  const RunnerChoice& choice = outline_.runner;
  if (choice.runs_mpirun()) {
    std::vector<std::string> options;
    for (const MpiOption& option : outline_.mpi_options.options) {
      options.insert(options.end(), option.words.begin(), option.words.end());
    }
    try_temporary_folder(options, job_.environment);
  }
  give_memory_folder();
  remove_old_markers(job_.layout);
  processes_.merge_streams(job_.options.merge);
  processes_.mask_output([this](std::string_view piece) { return secrets_.masked(piece); });
  processes_.watch_output([this](StreamKind kind, const RankTag* tag, std::string_view piece) {
    output_.add(kind, tag, piece);
  });
  expect_ranks();
}

void JobRun::give_memory_folder() {
  const std::string every = smp::value_or(job_.environment, "SMP_CHECKPOINT_MEMORY");
  if (every.empty() || every == "0" || !smp::value_or(job_.environment, kMemoryFolder).empty()) {
    return;
  }
  if (!memory_) {
    LaunchFolder::remove_abandoned("/dev/shm");  // of jobs whose train was killed
    memory_.emplace({"/dev/shm"});
  }
  outline_.environment.host_variables.push_back({kMemoryFolder, memory_->path()});
}

void JobRun::expect_ranks() {
  const RunnerChoice& choice = outline_.runner;
  if (!choice.runs_mpirun()) return;
  output_.expect_mpirun();
  const TagEnd end = facts_.has_prterun ? TagEnd::kSpace : TagEnd::kColon;
  processes_.set_rank_tags(RankTags(choice.hosts, choice.processes_per_host, end));
}

/// Afterwards there is a plan, or the job ends so.
std::optional<Outcome> JobRun::fetch_code() {
  if (plan_) return std::nullopt;
  if (!fetch::fetch_code(outline_.code, transfer_, processes_)) {
    const LaunchPlan unfinished = make_launch_plan(job_, facts_, outline_);
    return Outcome{.status = stopped_status(processes_),
                   .command = unfinished.command.user_command};
  }
  job_.program.code = look_into_code(job_.layout, job_.program.entry_point, job_.environment);
  job_.program.code.fetched = true;
  plan_ = make_launch_plan(job_, facts_, outline_);
  return std::nullopt;
}

Outcome JobRun::run_program() {
  const LaunchPlan& plan = *plan_;
  if (auto outcome = runner_->connect()) {
    if (outcome->command.empty()) outcome->command = plan.command.argv;
    return *outcome;
  }
  if (plan.check) {
    SMP_LOG(info, "Check before the start: {}", shell_join(secrets_.mask(plan.check->argv)));
    Outcome checked = runner_->run(plan.check->argv);
    if (processes_.stop_signal() != 0) {
      if (checked.status.ok()) checked.status = stopped_status(processes_);
      return checked;
    }
    if (!checked.status.ok() && plan.check->fails_job) return checked;
    if (!checked.status.ok()) {
      SMP_LOG(
          warning,
          "The check before the start failed, and the job goes on; SM_LAUNCH_CHECK=strict would "
          "have ended it");
    }
  }
  return run_with_restarts();
}

/// Plans the job for the hosts that are left where some are lost, `reported` among them, if that is
/// not empty. False where none are, or, with the reason in the log, where the job is to end.
bool JobRun::go_on_without_lost(const std::string& reported, std::int64_t restarts) {
  if (processes_.stop_signal() != 0 || job_.options.min_hosts == 0) return false;
  std::vector<std::string> lost = runner_->silent_hosts();
  if (!reported.empty() && std::ranges::find(lost, reported) == lost.end()) {
    lost.push_back(reported);
  }
  if (lost.empty() || processes_.stop_signal() != 0) return false;
  const std::string names = fmt::to_string(fmt::join(lost, ", "));
  try {
    SmallerJob smaller = plan_without_hosts(job_, facts_, lost, restarts);
    job_ = std::move(smaller.job);
    outline_ = smaller.plan.outline;  // the runner and the recorder look at it
    plan_ = std::move(smaller.plan);
    give_memory_folder();
  } catch (const smp::ConfigError& error) {
    SMP_LOG(error, "The job does not go on without {}: {}", names, error.what());
    return false;
  }
  SMP_LOG(warning, "Lost {}; all ranks are started again on {} hosts (restart {} of {})", names,
          outline_.runner.hosts.size(), restarts + 1, job_.options.restarts);
  expect_ranks();
  output_.begin_again();
  return true;
}

/// The outcome of the last start of the ranks. An exception that comes twice in a row, and not from
/// another launcher's host, is the script's own; ranks may be killed as often as it happens.
Outcome JobRun::run_with_restarts() {
  std::string last_exception;
  for (std::int64_t restarts = 0;; ++restarts) {
    if (job_.options.restarts > 0) {
      set_variable(outline_.environment.variables, "SM_RESTART_COUNT", fmt::to_string(restarts));
    }
    Outcome outcome;
    try {
      outcome = runner_->run(plan_->command.argv);
    } catch (const LostHost& loss) {
      if (!go_on_without_lost(loss.host(), restarts)) throw;
      continue;
    }
    if (is_tolerated(job_, outcome, output_)) outcome.status = {};
    const bool runs_mpirun = outline_.runner.runs_mpirun();
    const std::string lost_host = runs_mpirun ? output_.reports().lost_host() : "";
    if (!outcome.status.ok() || !lost_host.empty()) {
      // A rank may fail of a connection before anybody knows that its host is lost.
      if (!outcome.followed && go_on_without_lost(lost_host, restarts)) continue;
      if (outcome.status.ok()) outcome.status.code = 1;  // as Open MPI 5 may end then
    }
    const bool was_stopped = processes_.stop_signal() != 0 || outcome.status.code == kStopped;
    const bool ends = outcome.status.ok() || outcome.followed || !lost_host.empty() ||
                      was_stopped || restarts == job_.options.restarts;
    if (ends) return outcome;
    const Cause cause = find_cause({.status = outcome.status, .is_mpirun = runs_mpirun}, output_);
    const std::string exception(cause.traceback == nullptr ? "" : cause.traceback->exception());
    const bool is_alone = runs_mpirun || outline_.runner.hosts.size() == 1;
    if (is_alone && !exception.empty() && exception == last_exception) {
      SMP_LOG(error, "The script failed twice in a row by one exception and is not started again");
      return outcome;
    }
    const std::string who =
        cause.rank == OutputRecord::kNoRank ? "the script" : fmt::format("rank {}", cause.rank);
    SMP_LOG(warning, "Failed: {}: {}; all ranks are started again (restart {} of {})", who,
            secrets_.mask(exception.empty() ? cause.headline : exception), restarts + 1,
            job_.options.restarts);
    last_exception = exception;
    output_.begin_again();
    if (outline_.runner.kind == Runner::kTorchrun && !is_alone) {
      plan_ = plan_next_start(job_, facts_, outline_);
      outline_ = plan_->outline;  // the runner looks at it
    }
  }
}

JobStatus JobRun::run_plan() {
  EndContext context{.policy = job_.options.exit,
                     .oom_kills_before = oom_kills(),
                     .folders = {job_.layout.base(), job_.layout.output(), "/tmp"},
                     .channels = job_.files.channels.sorted_names(),
                     .ranks = {},
                     .runs_mpirun = outline_.runner.runs_mpirun(),
                     .shared_memory = shared_memory_text(facts_),
                     .debugger = smp::value_or(job_.environment, "USE_SMDEBUG") != "0",
                     .secrets = secrets_};
  try {
    if (outline_.certificates) join_certificates(*outline_.certificates);
    std::optional<Outcome> outcome = fetch_code();
    if (!outcome) {
      context.module = job_.program.code.entry_point_module;
      log_summary(job_, facts_, *plan_);
      outcome = prepare(*plan_, {settings_, transfer_, processes_, secrets_});
    }
    if (!outcome) {
      runner_ = make_runner(outline_, settings_, processes_);
      log_invocation(*plan_, secrets_);
      outcome = run_program();
    }
    context.ranks = outline_.ranks.places;  // fewer, where hosts were lost
    return status_of(*outcome, processes_, output_, context);
  } catch (const std::exception& error) {
    context.ranks = outline_.ranks.places;
    return status_of(error, context);
  }
}

/// Hosts that rely on each other learn it also when this one never came to its job.
void JobRun::announce(const JobStatus& status) {
  try {
    if (!runner_ && processes_.stop_signal() == 0) {
      runner_ = make_runner(outline_, settings_, processes_);
    }
    if (runner_) runner_->announce(status);
  } catch (const std::exception& error) {
    SMP_LOG(warning, "the other hosts cannot be told: {}", error.what());
  }
}

int JobRun::to_end() {
  prepare_host();
  const auto began = std::filesystem::file_time_type::clock::now();
  fetch::OutputSync output_sync(outline_.intermediate_output, job_.layout, transfer_, processes_);
  JobRecorder recorder(job_, outline_, output_, processes_, secrets_);
  JobStatus status = run_plan();
  recorder.stop();
  // Our own marker first: where the first container to end stops all others, a worker that was
  // told ends at once.
  status.exit_code = publish(job_.layout, status);
  if (status.exit_code == 0) {
    const bool is_python = plan_ && plan_->entry.kind == EntryPointKind::kProgram;
    warn_of_hidden_error(is_python ? job_.program.entry_point : "", output_);
    warn_of_empty_model(job_, began);
  }
  if (job_.options.report && job_.is_master()) {
    if (runner_ && processes_.stop_signal() == 0) runner_->collect_records();
    recorder.write_report(status);
  }
  announce(status);
  output_sync.finish();
  const auto grace_end = Clock::now() + job_.options.grace;
  while (processes_.stop_signal() == 0 && processes_.wait(grace_end) != Wake::kDeadline) {
  }
  warn_of_left_processes(processes_);
  processes_.sweep(kSweepGrace);
  return status.exit_code;
}

JobConfig read_job(const opt_ml::Layout& layout, const smp::Variables& environment,
                   ProcessRunner& processes) {
  std::vector<std::string> hosts;
  if (const auto cluster = cluster_to_ask(layout, environment)) {
    hosts = gather_hosts(*cluster, read_options(environment), smp::JobSecret::given(environment),
                         processes);
  }
  return read_job_config(layout, environment, hosts);
}

}  // namespace

int run(const CommandLine& line, const Secrets& secrets) {
  const smp::Variables environment = smp::read_variables();
  const opt_ml::Layout layout = find_layout(environment);
  bool has_begun = false;
  try {
    Supervisor processes;  // first: it blocks the signals for all that follows
    JobConfig job = read_job(layout, environment, processes);
    if (line.action == Action::kCheck) job = make_check_job(std::move(job), line.json);
    log_as_the_launcher(job.log_level);
    const HostFacts facts = probe_host(job);
    if (job.options.dry_run) {
      std::cout << plan_json(plan_to_show(job, facts), secrets);
      return 0;
    }
    JobRun started(std::move(job), facts, processes, secrets);
    has_begun = true;
    return started.to_end();
  } catch (const std::exception& error) {
    if (!has_begun) remove_old_markers(layout);
    return publish(layout, status_of(error, {.secrets = secrets}));
  }
}

}  // namespace entrypoint
