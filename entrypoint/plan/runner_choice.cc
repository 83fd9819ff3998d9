// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/runner_choice.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

struct Candidate {
  std::string_view flag;
  bool Distribution::*wanted;
  Runner runner;
};

// The order decides.
constexpr std::array kCandidates = {
    Candidate{"sagemaker_mpi_enabled", &Distribution::mpi, Runner::kMpi},
    Candidate{"sagemaker_pytorch_ddp_enabled", &Distribution::pytorch_ddp, Runner::kSmddp},
    Candidate{"sagemaker_torch_distributed_enabled", &Distribution::torch_distributed,
              Runner::kTorchrun},
    Candidate{"sagemaker_distributed_dataparallel_enabled", &Distribution::data_parallel,
              Runner::kSmddp},
};

/// The candidate that the variable names; null for a plain process.
const Candidate* wished(RunnerWish wish) {
  switch (wish) {
    case RunnerWish::kMpi:
      return &kCandidates[0];
    case RunnerWish::kTorchrun:
      return &kCandidates[2];
    case RunnerWish::kSmddp:
      return &kCandidates[3];
    case RunnerWish::kAuto:
    case RunnerWish::kProcess:
      break;
  }
  return nullptr;
}

const Candidate* first_wanted(const Distribution& distribution) {
  const auto* const found = std::ranges::find_if(
      kCandidates, [&](const Candidate& candidate) { return distribution.*candidate.wanted; });
  return found == kCandidates.end() ? nullptr : found;
}

int processes_per_host(const JobConfig& job, const HostFacts& facts) {
  if (job.distribution.processes_per_host) return *job.distribution.processes_per_host;
  if (facts.num_gpus > 0) return facts.num_gpus;
  return std::max(facts.num_neurons, 1);
}

[[noreturn]] void refuse_xla() {
  throw smp::ConfigError(
      "the PyTorch-XLA runner, asked for by sagemaker_pytorch_xla_multi_worker_enabled=true, is "
      "not offered: AWS has discontinued the Training Compiler that it belongs to; use torchrun "
      "(sagemaker_torch_distributed_enabled) or MPI (sagemaker_mpi_enabled)");
}

/// Groups of other instance types count their GPUs differently.
void warn_of_unequal_hosts(const JobConfig& job, RunnerChoice& choice) {
  if (job.distribution.processes_per_host) return;
  const opt_ml::InstanceGroup* first = nullptr;
  for (const opt_ml::InstanceGroup& group : job.files.resources.groups) {
    if (std::ranges::find(job.hosts.groups, group.name) == job.hosts.groups.end()) {
      continue;
    }
    if (first == nullptr) first = &group;
    if (group.instance_type == first->instance_type) continue;
    choice.warnings.push_back(fmt::format(
        "groups {} ({}) and {} ({}) run together and sagemaker_mpi_num_of_processes_per_host is "
        "not set: every host is taken to run {} processes, as this one would; set it",
        first->name, first->instance_type, group.name, group.instance_type,
        choice.processes_per_host));
    return;
  }
}

/// Notes flags that have no effect beside the variable.
void tell_what_is_overridden(const JobConfig& job, const Candidate* taken, RunnerChoice& choice) {
  for (const Candidate& other : kCandidates) {
    if (&other == taken || !(job.distribution.*other.wanted)) continue;
    choice.notes.push_back(
        fmt::format("{}=true has no effect beside SM_LAUNCH_RUNNER", other.flag));
  }
}

void tell_what_has_no_effect(const JobConfig& job, const Candidate& taken, RunnerChoice& choice) {
  const bool unsupported_pair = job.is_model_parallel() && job.distribution.data_parallel;
  if (unsupported_pair) {
    std::string_view rest = " and the latter has no effect";
    if (choice.kind == Runner::kSmddp) rest = "; ask for one of the two";
    if (choice.kind == Runner::kTorchrun) {
      rest =
          " and the latter has no effect; a script asks for smddp itself, by "
          "init_process_group(\"smddp\")";
    }
    choice.warnings.push_back(fmt::format(
        "mp_parameters together with sagemaker_distributed_dataparallel_enabled=true is not "
        "supported: the {} runner is taken{}",
        title_of(choice.kind), rest));
  }
  for (const Candidate& other : kCandidates) {
    const bool is_later = &other > &taken && job.distribution.*other.wanted;
    const bool is_said = unsupported_pair && other.wanted == &Distribution::data_parallel;
    if (!is_later || is_said) continue;
    choice.notes.push_back(fmt::format("{}=true has no effect beside {}", other.flag, taken.flag));
  }
}

RunnerChoice on_hosts_of(const JobConfig& job) {
  return {.hosts = job.hosts.all,
          .current_host = job.current_host(),
          .master = job.hosts.master,
          .cluster_serves_hosts = job.cluster_serves_hosts()};
}

RunnerChoice call_module(const JobConfig& job) {
  RunnerChoice choice = on_hosts_of(job);
  choice.kind = Runner::kTrainingModule;
  choice.reason = fmt::format(
      "SAGEMAKER_TRAINING_MODULE={} is not one that this launcher stands in for: Python imports "
      "and calls it on every host",
      *job.program.framework_module);
  if (job.options.runner != RunnerWish::kAuto) {
    choice.warnings.push_back(
        "SM_LAUNCH_RUNNER has no effect beside SAGEMAKER_TRAINING_MODULE; unset the latter");
  }
  choice.notes.push_back(
      "the training module itself fetches the code, installs it and starts it, with one process "
      "or several");
  return choice;
}

}  // namespace

std::string_view title_of(Runner runner) {
  switch (runner) {
    case Runner::kMpi:
      return "MPI";
    case Runner::kSmddp:
      return "SMDDP";
    case Runner::kTorchrun:
      return "torchrun";
    case Runner::kTrainingModule:
      return "training module";
    case Runner::kProcess:
      break;
  }
  return "process";
}

RunnerChoice choose_runner(const JobConfig& job, const HostFacts& facts) {
  if (job.program.framework_module && *job.program.framework_module != kPyTorchModule)
    return call_module(job);

  const Distribution& distribution = job.distribution;
  RunnerChoice choice = on_hosts_of(job);
  const RunnerWish wish = job.options.runner;
  if (wish == RunnerWish::kProcess) {
    choice.reason = "SM_LAUNCH_RUNNER=process: a plain process on every host";
    tell_what_is_overridden(job, nullptr, choice);
    return choice;
  }
  if (!job.hosts.current_group_takes_part) {
    choice.reason = job.hosts.groups.empty()
                        ? "no distribution is asked for: a plain process on every host"
                        : fmt::format("group {} takes no part in the distribution: a plain process",
                                      job.files.resources.current_group_name);
    return choice;
  }
  const bool by_variable = wish != RunnerWish::kAuto;
  const Candidate* const taken = by_variable ? wished(wish) : first_wanted(distribution);
  if (taken == nullptr) {
    if (distribution.pytorch_xla) refuse_xla();
    choice.reason = "the distribution asked for is not PyTorch's: a plain process on every host";
    return choice;
  }
  choice.kind = taken->runner;
  choice.reason = by_variable ? fmt::format("SM_LAUNCH_RUNNER={}: {}",
                                            smp::value_or(job.environment, "SM_LAUNCH_RUNNER"),
                                            title_of(taken->runner))
                              : fmt::format("{} is true: {}", taken->flag, title_of(taken->runner));
  choice.hosts = job.hosts.distribution;
  choice.processes_per_host = processes_per_host(job, facts);
  if (choice.kind != Runner::kTorchrun) {
    choice.role = job.is_master() ? Role::kMaster : Role::kWorker;
  }
  warn_of_unequal_hosts(job, choice);
  if (by_variable) {
    tell_what_is_overridden(job, taken, choice);
  } else {
    tell_what_has_no_effect(job, *taken, choice);
  }
  if (distribution.native_launcher) {
    choice.notes.push_back(
        "sagemaker_toolkit_native_launcher_enabled has no effect: both streams are passed on as "
        "they are and kept for the failure text in any case");
  }
  return choice;
}

}  // namespace entrypoint
