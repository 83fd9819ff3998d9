// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/launch_plan.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/plan/arguments.h"
#include "entrypoint/plan/host_facts.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::string_view kModule = "smdistributed.check";
constexpr std::string_view kOutliers = "outliers";  // --outliers report|fail
constexpr std::string_view kReport = "report";
constexpr std::string_view kFail = "fail";
constexpr std::string_view kFormat = "format";  // --format text|json
constexpr std::string_view kJson = "json";
constexpr const char* kPort = "MASTER_PORT";

PlannedCommand module_command(const JobConfig& job, const HostFacts& facts) {
  const Words argv = make_training_module_command(*job.program.framework_module, facts.python);
  return {.argv = argv, .user_command = argv};
}

EntryPoint check_entry_point() {
  return {.kind = EntryPointKind::kModule,
          .name = "-m " + std::string(kModule),
          .module = std::string(kModule)};
}

std::vector<std::string> check_arguments(CheckPolicy policy) {
  return {"--" + std::string(kOutliers),
          std::string(policy == CheckPolicy::kStrict ? kFail : kReport)};
}

std::string unchecked_warning(const HostFacts& facts) {
  return fmt::format(
      "SM_LAUNCH_CHECK has no effect: {}; set SM_LAUNCH_PYTHON to an interpreter that has torch",
      facts.python.empty() ? "there is no Python" : facts.python.string() + " has no torch");
}

/// A port for a rendezvous of its own, so that a host that is done early does not meet another's
/// check, or last start, when it goes on. Text that is no port stays, for torchrun to refuse.
std::string port_beside(const std::string& port) {
  constexpr int kLastPort = 65535;
  const auto number = smp::parse_number<int>(port);
  if (!number) return port;
  return std::to_string(*number < kLastPort ? *number + 1 : *number - 1);
}

StartCheck make_check(const JobConfig& job, const HostFacts& facts, const JobOutline& outline,
                      const std::string& port) {
  const EntryPoint entry = check_entry_point();
  const Words arguments = check_arguments(job.options.check);
  PlannedCommand command = plan_command({.job = job,
                                         .facts = facts,
                                         .outline = outline,
                                         .entry = entry,
                                         .arguments = arguments,
                                         .port = port_beside(port)});
  return {.argv = std::move(command.argv), .fails_job = job.options.check == CheckPolicy::kStrict};
}

/// Warnings of the hyperparameters for which the command line has no room.
Words left_out_warnings(const JobOutline& outline) {
  Words warnings;
  for (const std::string& name : outline.arguments.left_out) {
    const std::string variable = hyperparameter_variable(name);
    const bool is_short = find_variable(outline.environment.variables, variable) != nullptr;
    warnings.push_back(fmt::format(
        "hyperparameter \"{}\" is not sent as an argument: one holds at most {} bytes, and all "
        "together get {}; read {}",
        name, kLongestArgumentBytes, kAllArgumentsBytes,
        is_short ? variable : "the file that " + variable + "_FILE names"));
  }
  return warnings;
}

void add(Words& lines, std::optional<std::string> line) {
  if (line) lines.push_back(std::move(*line));
}

Words warnings_of(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan) {
  const JobOutline& outline = plan.outline;
  const bool lacks_check =
      job.options.check != CheckPolicy::kOff && !plan.check && !plan.command.argv.empty();
  Words warnings = job.warnings;
  append(warnings, outline.runner.warnings);
  append(warnings, plan.entry.warnings);
  add(warnings, skipped_fetch_warning(job));
  add(warnings, driver_warning(facts.gpu_driver, facts.torch_version));
  append(warnings, outline.network.warnings);
  append(warnings, outline.parallel.warnings);
  append(warnings, outline.ranks.warnings);
  append(warnings, outline.environment.warnings);
  append(warnings, plan.command.warnings);
  if (lacks_check) warnings.push_back(unchecked_warning(facts));
  if (job.options.min_hosts > 0 && (job.options.restarts == 0 || !outline.runner.runs_mpirun())) {
    warnings.emplace_back(
        "SM_LAUNCH_MIN_HOSTS has no effect: a job goes on without a host where mpirun starts its "
        "ranks and SM_LAUNCH_RESTARTS allows it");
  }
  if (!outline.runner.starts_ranks()) add(warnings, one_process_warning(outline.parallel.v1));
  append(warnings, left_out_warnings(outline));
  return warnings;
}

Words notes_of(const JobConfig& job, const LaunchPlan& plan) {
  const JobOutline& outline = plan.outline;
  Words notes = outline.runner.notes;
  append(notes, plan.entry.notes);
  add(notes, fetch_note(job));
  if (!plan.entry.install.empty() && job.hosts.all.size() > 1) {
    notes.emplace_back(
        "each host installs packages for itself, so hosts reach the meeting point one after the "
        "other");
  }
  append(notes, outline.network.notes);
  append(notes, outline.parallel.notes);
  append(notes, outline.ranks.notes);
  append(notes, outline.environment.notes);
  append(notes, plan.command.notes);
  if (!outline.certificates) return notes;
  for (const std::string& name : outline.certificates->kept) {
    notes.push_back(fmt::format("{}={} is kept: what reads it trusts no SMP_EXTRA_CA_FILE", name,
                                smp::value_or(job.environment, name)));
  }
  return notes;
}

}  // namespace

LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts, JobOutline decided) {
  LaunchPlan plan{.outline = std::move(decided)};
  const JobOutline& outline = plan.outline;
  const std::string& port = *find_variable(outline.environment.variables, kPort);
  if (outline.runner.kind == Runner::kTrainingModule) {
    plan.command = module_command(job, facts);
  } else {
    plan.entry = resolve_entry_point(job, facts.python);
    plan.command = plan_command({.job = job,
                                 .facts = facts,
                                 .outline = outline,
                                 .entry = plan.entry,
                                 .arguments = outline.arguments.words,
                                 .port = port});
  }
  const bool starts_something = !plan.command.argv.empty();
  if (starts_something && job.options.check != CheckPolicy::kOff && !facts.torch_version.empty()) {
    plan.check = make_check(job, facts, outline, port);
  }
  plan.files = outline.environment.job.files;
  if (plan.command.file) plan.files.push_back(*plan.command.file);
  plan.notes = notes_of(job, plan);
  plan.warnings = warnings_of(job, facts, plan);
  return plan;
}

LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts) {
  return make_launch_plan(job, facts, outline_job(job, facts));
}

LaunchPlan plan_next_start(const JobConfig& job, const HostFacts& facts, JobOutline outline) {
  auto& variables = outline.environment.variables;
  const std::string port = port_beside(*find_variable(variables, kPort));
  for (const char* name : {kPort, "SM_MASTER_PORT"}) set_variable(variables, name, port);
  return make_launch_plan(job, facts, std::move(outline));
}

SmallerJob plan_without_hosts(const JobConfig& job, const HostFacts& facts,
                              const std::vector<std::string>& lost, std::int64_t restarts) {
  const std::vector<std::string>& hosts = job.files.resources.hosts;
  for (const std::string& host : lost) {
    if (host == job.current_host() || std::ranges::find(hosts, host) == hosts.end()) {
      throw smp::ConfigError("{} is not among the other hosts, {}", host, fmt::join(hosts, ", "));
    }
  }
  JobFiles files = job.files;
  files.resources = opt_ml::without_hosts(std::move(files.resources), lost);
  const auto left = static_cast<std::int64_t>(files.resources.hosts.size());
  if (restarts == job.options.restarts) {
    throw smp::ConfigError("{} of {} restarts were made", restarts, job.options.restarts);
  }
  if (job.options.min_hosts == 0) throw smp::ConfigError("SM_LAUNCH_MIN_HOSTS is not set");
  if (left < job.options.min_hosts) {
    throw smp::ConfigError("{} hosts are left, and SM_LAUNCH_MIN_HOSTS is {}", left,
                           job.options.min_hosts);
  }
  SmallerJob smaller{.job = make_job_config(job.layout, std::move(files), job.environment)};
  smaller.job.program = job.program;
  smaller.plan = make_launch_plan(smaller.job, facts);
  if (!smaller.plan.outline.environment.job.files.empty()) {
    throw smp::ConfigError("variables of the job are too long to be changed: they are in files");
  }
  return smaller;
}

JobConfig make_check_job(JobConfig job, bool as_json) {
  job.program.entry_point = check_entry_point().name;
  job.files.hyperparameters.user = opt_ml::Value::Object{};
  job.files.hyperparameters.user.set(std::string(kOutliers), kFail);
  if (as_json) job.files.hyperparameters.user.set(std::string(kFormat), kJson);
  job.options.arguments = ArgumentStyle::kPython;
  job.options.check = CheckPolicy::kOff;
  job.options.report = false;
  job.options.restarts = 0;
  job.program.framework_module.reset();
  job.program.module_dir = job.layout.code().string();
  job.program.code = {};
  return job;
}

}  // namespace entrypoint
