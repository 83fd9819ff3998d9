// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/start_log.h"

#include <string>

#include <fmt/ranges.h>

#include "entrypoint/config/shell_text.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {

void log_summary(const JobConfig& job, const HostFacts& facts, const LaunchPlan& plan) {
  if (facts.num_gpus == 0) SMP_LOG(info, "No GPUs detected (normal if no gpus installed)");
  SMP_LOG(info, "train {}: cpus={} gpus={} neurons={}", SMP_VERSION, facts.num_cpus, facts.num_gpus,
          facts.num_neurons);
  if (!job.files.hyperparameters.not_json.empty()) {
    SMP_LOG(debug, "Hyperparameters that are text and not JSON: {}",
            fmt::join(job.files.hyperparameters.not_json, ", "));
  }
  if (job.program.framework_module) {
    const std::string& module = *job.program.framework_module;
    SMP_LOG(info, "Imported framework {}", module.substr(0, module.find(':')));
  }
  if (plan.outline.runner.kind == Runner::kSmddp) SMP_LOG(info, "Invoking SMDataParallel");
  if (plan.outline.runner.kind == Runner::kTorchrun) SMP_LOG(info, "Invoking TorchDistributed...");
  if (job.program.framework_module && plan.outline.runner.kind != Runner::kTrainingModule) {
    SMP_LOG(info, "Invoking user training script.");
  }
  if (!plan.outline.cluster.empty()) SMP_LOG(info, "Cluster: {}", plan.outline.cluster);
  SMP_LOG(info, "Runner: {}", plan.outline.runner.reason);
  for (const std::string& note : plan.notes) SMP_LOG(info, "{}", note);
  for (const std::string& warning : plan.warnings) SMP_LOG(warning, "{}", warning);
}

void log_invocation(const LaunchPlan& plan, const Secrets& secrets) {
  if (!smp::log::enabled(smp::log::Level::kInfo)) return;
  const ProgramEnvironment& environment = plan.outline.environment;
  std::string text = "Invoking user script\n\n";
  // Log readers search for these words, so they stay where the variables do not.
  if (smp::log::enabled(smp::log::Level::kDebug)) {
    text += "Training Env:\n\n";
    text += opt_ml::to_json_indented(secrets.mask(environment.job.training_environment), 4);
    text += "\n\nEnvironment variables:\n\n";
    for (const Variable& variable : secrets.mask(environment.variables)) {
      text += fmt::format("{}={}\n", variable.name, variable.value);
    }
  } else {
    text += fmt::format(
        "Training Env: in SM_TRAINING_ENV. Environment variables: {} are set; SM_LOG_LEVEL=10 "
        "prints all of them\n",
        environment.variables.size());
  }
  text += "\nInvoking script with the following command:\n\n";
  const auto& command = plan.command.argv.empty() ? plan.command.user_command : plan.command.argv;
  text += shell_join(secrets.mask(command)) + "\n\n";
  smp::log::write(smp::log::Level::kInfo, text);
}

}  // namespace entrypoint
