// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/torchrun_command.h"

#include <algorithm>

#include "entrypoint/plan/words.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

void refuse_other_kinds(const EntryPoint& entry) {
  if (entry.kind == EntryPointKind::kPackage) {
    throw smp::ConfigError(
        "Python packages are not supported for torch_distributed. Please use a python script as "
        "the entry-point: remove setup.py from the code folder, name a script in a subfolder "
        "that is no package, or set sagemaker_program to \"-m MODULE\"; found entry point \"{}\"",
        entry.name);
  }
  if (!entry.is_python()) {
    throw smp::ConfigError(
        "Unsupported entry point type for torch_distributed: \"{}\" is {}, expected a .py script "
        "or \"-m MODULE\"; set sagemaker_program to one, or start ranks by MPI "
        "(sagemaker_mpi_enabled)",
        entry.name, entry.program_name());
  }
}

Words torchrun_program(const JobConfig& job, const HostFacts& facts) {
  const bool users_interpreter = !job.options.python.empty();
  if (facts.has_torchrun && !users_interpreter) return {"torchrun"};
  if (facts.torch_version.empty()) {
    throw smp::ConfigError(
        "sagemaker_torch_distributed_enabled=true needs torchrun, which is not on PATH{}; install "
        "torch, or set SM_LAUNCH_PYTHON to an interpreter that has it",
        facts.python.empty() ? "; nor is Python"
                             : ", and " + facts.python.string() + " has no torch");
  }
  return {facts.python.string(), "-m", "torch.distributed.run"};
}

}  // namespace

std::vector<std::string> make_torchrun_command(const TorchrunInput& input) {
  refuse_other_kinds(input.entry);
  const std::vector<std::string>& hosts = input.outline.runner.hosts;
  Words words;
  if (value_or(input.job.environment, "RUN_NEURON_PARALLEL_COMPILE") == "1") {
    words.emplace_back("neuron_parallel_compile");
  }
  append(words, torchrun_program(input.job, input.facts));
  append(words, {"--nnodes", std::to_string(hosts.size()), "--nproc_per_node",
                 std::to_string(input.outline.runner.processes_per_host)});
  const bool several_hosts = hosts.size() > 1;
  if (several_hosts) {
    const auto& variables = input.outline.environment.variables;
    append(words, {"--master_addr", *find_variable(variables, "MASTER_ADDR")});
  }
  // On one host, too: torchrun would take a port of its own, whatever the environment says.
  append(words, {"--master_port", input.port});
  if (several_hosts) {
    const auto node = std::ranges::find(hosts, input.job.current_host());
    append(words, {"--node_rank", std::to_string(node - hosts.begin())});
  }
  append(words,
         input.entry.module.empty() ? Words{input.entry.name} : Words{"-m", input.entry.module});
  append(words, input.arguments);
  return words;
}

void check_torchrun(const JobConfig& job, const HostFacts& facts, const EntryPoint& entry) {
  refuse_other_kinds(entry);
  torchrun_program(job, facts);
}

}  // namespace entrypoint
