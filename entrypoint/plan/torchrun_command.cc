// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/torchrun_command.h"

#include <algorithm>

#include "entrypoint/plan/words.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

void check_entry_point(const EntryPoint& entry) {
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

Words program(const TorchrunInput& input) {
  const bool users_interpreter = !input.job.options.python.empty();
  if (input.facts.has_torchrun && !users_interpreter) return {"torchrun"};
  if (input.facts.torch_version.empty()) {
    throw smp::ConfigError(
        "sagemaker_torch_distributed_enabled=true needs torchrun, which is not on PATH{}; install "
        "torch, or set SM_LAUNCH_PYTHON to an interpreter that has it",
        input.facts.python.empty() ? "; nor is Python"
                                   : ", and " + input.facts.python.string() + " has no torch");
  }
  return {input.facts.python.string(), "-m", "torch.distributed.run"};
}

}  // namespace

std::vector<std::string> make_torchrun_command(const TorchrunInput& input) {
  check_entry_point(input.entry);
  Words words;
  if (value_or(input.job.environment, "RUN_NEURON_PARALLEL_COMPILE") == "1") {
    words.emplace_back("neuron_parallel_compile");
  }
  append(words, program(input));
  append(words, {"--nnodes", std::to_string(input.hosts.size()), "--nproc_per_node",
                 std::to_string(input.processes_per_host)});
  const bool several_hosts = input.hosts.size() > 1;
  if (several_hosts) append(words, {"--master_addr", input.master_address});
  // On one host, too: torchrun would take a port of its own, whatever the environment says.
  append(words, {"--master_port", input.master_port});
  if (several_hosts) {
    const auto node = std::ranges::find(input.hosts, input.job.current_host());
    append(words, {"--node_rank", std::to_string(node - input.hosts.begin())});
  }
  append(words,
         input.entry.module.empty() ? Words{input.entry.name} : Words{"-m", input.entry.module});
  append(words, input.arguments);
  return words;
}

}  // namespace entrypoint
