// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/suggestion.h"

#include <algorithm>
#include <string_view>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

constexpr std::string_view kLocal = "local";  // an instance type of no machine

bool has(const std::vector<std::string>& options, std::string_view name) {
  return std::ranges::any_of(options, [&](const std::string& option) {
    return option == name || option.starts_with(std::string(name) + "=");
  });
}

}  // namespace

std::vector<std::string> suggestion_command(const JobConfig& job, const HostFacts& facts,
                                            const LaunchPlan& plan,
                                            const std::vector<std::string>& options) {
  if (plan.entry.kind != EntryPointKind::kProgram) {
    throw smp::ConfigError(
        "--suggest watches a Python script, and the job's entry point \"{}\" is none",
        plan.entry.name);
  }
  if (plan.outline.code.is_fetched()) {
    throw smp::ConfigError(
        "--suggest: the job's code is still to be fetched; give it as a folder, or run "
        "`python -m smdistributed.suggest SCRIPT ARG…` where it is");
  }
  std::vector<std::string> command{facts.python.string(), "-m", "smdistributed.suggest"};
  const auto give = [&](std::string name, std::string value) {
    command.push_back(std::move(name));
    command.push_back(std::move(value));
  };
  for (const std::string& option : options) {
    if (option == "--write") {
      give("--write", job.layout.hyperparameters().string());
    } else {
      command.push_back(option);
    }
  }
  const RunnerChoice& runner = plan.outline.runner;
  const bool measured = has(options, "--measured");
  if (!has(options, "--hosts") && !measured) {
    give("--hosts", std::to_string(job.hosts.all.size()));
  }
  if (!has(options, "--instance-type") && !measured) {
    const std::string& type = job.files.resources.current_instance_type;
    if (type.empty() || type == kLocal) {
      throw smp::ConfigError(
          "--suggest: the job's resourceconfig.json names no instance type; give --instance-type "
          "TYPE, such as ml.p4d.24xlarge, or --measured FILE, which train --check --json writes, "
          "or the report of an earlier job of the script");
    }
    give("--instance-type", type);
    if (runner.starts_ranks()) give("--processes", std::to_string(runner.processes_per_host));
  }
  give("--folder", plan.outline.code.folder.string());
  command.emplace_back("--");
  command.push_back((plan.outline.code.folder / plan.entry.name).string());
  const Words& arguments = plan.outline.arguments.words;
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

}  // namespace entrypoint
