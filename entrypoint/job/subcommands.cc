// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>

#include <fmt/format.h>
#include <unistd.h>

#include "entrypoint/config/job_config.h"
#include "entrypoint/doctor/doctor.h"
#include "entrypoint/doctor/host_probe.h"
#include "entrypoint/doctor/python_packages.h"
#include "entrypoint/job/ending.h"
#include "entrypoint/job/preparation.h"
#include "entrypoint/job/run.h"
#include "entrypoint/plan/plan_report.h"
#include "entrypoint/plan/suggestion.h"
#include "entrypoint/process/spawn.h"
#include "entrypoint/process/supervisor.h"
#include "entrypoint/report/report_page.h"
#include "entrypoint/runners/child_command.h"
#include "entrypoint/runners/rank_exec.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

void print_plan(bool as_json, const Secrets& secrets) {
  const Supervisor signals;  // a reader that goes away early ends nothing
  const smp::Variables environment = smp::read_variables();
  const JobConfig job = read_job_config(find_layout(environment), environment);
  log_as_the_launcher(job.log_level);
  const LaunchPlan plan = plan_to_show(job, probe_host(job));
  std::cout << (as_json ? plan_json(plan, secrets) : plan_text(plan, secrets));
}

/// Writes the report. Returns the page's path and the verdict.
std::string report_of(const CommandLine& line, const Secrets& secrets) {
  const auto mask = [&](std::string text) { return secrets.mask(std::move(text)); };
  report::ReportRequest request{.page = line.page, .mask = mask};
  for (const auto& folder : line.folders) request.folders.push_back(report::find_records(folder));
  if (request.folders.empty()) {
    request.folders.push_back(
        report::find_records(find_layout(smp::read_variables()).output_data()));
  }
  if (request.page.empty()) request.page = request.folders.front().parent_path() / "report.html";
  const std::string verdict = report::write_report(request);
  return mask(fmt::format("{}\n{}", request.page.string(),
                          verdict.empty() ? "No rank recorded a step." : verdict));
}

/// Becomes somebody else's command, as in `docker run IMAGE bash`, with the hostname shim preloaded
/// and SMP_EXTRA_CA_FILE trusted.
[[noreturn]] void become(const std::vector<std::string>& command,
                         std::vector<std::string> environment = current_environment()) {
  const std::string shim = find_hostname_shim(launcher_path()).string();
  const std::string own(value_of(environment, "LD_PRELOAD"));
  if (!shim.empty()) {
    set_variable(environment, "LD_PRELOAD", own.empty() ? shim : shim + ":" + own);
  }
  const smp::Variables own_environment = smp::read_variables();
  if (const auto certificates = plan_certificates(own_environment, find_layout(own_environment))) {
    join_certificates(*certificates);
    for (const std::string& name : certificates->variables) {
      set_variable(environment, name, certificates->joined.string());
    }
  }
  const std::string path(value_of(environment, "PATH"));
  const std::filesystem::path program = find_program(command.front(), path);
  if (program.empty()) {
    throw smp::ConfigError(
        "\"{}\" is neither `train`, nor one of its options, nor a program on PATH; {}",
        command.front(), nearest_command(command.front()));
  }
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  std::vector<char*> variables;
  for (const std::string& entry : environment) {
    variables.push_back(const_cast<char*>(entry.c_str()));
  }
  variables.push_back(nullptr);
  execve(program.c_str(), argv.data(), variables.data());
  throw smp::ConfigError("cannot execute {}: {}", program.string(), std::strerror(errno));
}

/// The verifier is Python's: `python -m smdistributed.modelparallel.checkpoint verify`.
std::vector<std::string> verifier(const CommandLine& line) {
  const smp::Variables environment = smp::read_variables();
  const std::filesystem::path python = find_python(smp::value_or(environment, "SM_LAUNCH_PYTHON"),
                                                   smp::value_or(environment, "PATH"));
  if (python.empty()) {
    throw smp::ConfigError(
        "--verify runs Python, and neither python3 nor python is on PATH; name one with "
        "SM_LAUNCH_PYTHON");
  }
  std::vector<std::string> command = {python.string(), "-m",
                                      "smdistributed.modelparallel.checkpoint", "verify"};
  command.insert(command.end(), line.command.begin(), line.command.end());
  const bool has_path = std::ranges::any_of(
      line.command, [](const std::string& word) { return !word.starts_with('-'); });
  if (!has_path) command.push_back(find_layout(environment).checkpoints().string());
  return command;
}

/// Becomes the planner, in the environment in which the script would run.
[[noreturn]] void suggest(const CommandLine& line) {
  const smp::Variables environment = smp::read_variables();
  const JobConfig job = read_job_config(find_layout(environment), environment);
  log_as_the_launcher(job.log_level);
  const HostFacts facts = probe_host(job);
  const LaunchPlan plan = make_launch_plan(job, facts);
  become(suggestion_command(job, facts, plan, line.command),
         planned_environment(plan.outline.environment, current_environment()));
}

}  // namespace

int run_subcommand(const CommandLine& line, const Secrets& secrets) {
  switch (line.action) {
    case Action::kPlan:
      print_plan(line.json, secrets);
      return 0;
    case Action::kDoctor: {
      const smp::Variables environment = smp::read_variables();
      const auto findings = examine(find_layout(environment), environment);
      std::cout << secrets.mask(line.json ? findings_json(findings) : findings_text(findings));
      return findings_exit_code(findings);
    }
    case Action::kRankExec:
      return run_rank({.command = line.command,
                       .command_file = line.command_file,
                       .sets_rank_variables = line.sets_rank_variables});
    case Action::kMakeTree:
      run_make_tree(line.tree, std::cout);
      return 0;
    case Action::kReport:
      std::cout << report_of(line, secrets) << "\n";
      return 0;
    case Action::kVerify:
      become(verifier(line));
    case Action::kSuggest:
      suggest(line);
    case Action::kHelp:
      std::cout << help_text();
      return 0;
    case Action::kVersion:
      std::cout << "train " << SMP_VERSION << "\n";
      return 0;
    case Action::kExecOther:
      become(line.command);
    case Action::kTrain:
    case Action::kCheck:
      break;
  }
  throw smp::InternalError("action {} is a job", static_cast<int>(line.action));
}

}  // namespace entrypoint
