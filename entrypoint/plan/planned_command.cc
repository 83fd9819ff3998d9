// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/planned_command.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/config/shell_text.h"
#include "entrypoint/plan/mpirun_line.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

/// Open MPI gives each rank its own command as one variable, OMPI_ARGV, which Linux limits. Where
/// that is too long, every host writes the command to a file for its ranks.
std::optional<PlannedFile> file_of_long_command(const Words& command, const JobConfig& job) {
  constexpr std::size_t kRoomForRankExec = 4096;
  std::string text;
  for (const std::string& word : command) text.append(word).push_back('\0');
  if (text.size() + kRoomForRankExec <= kLongestArgumentBytes) return std::nullopt;
  return PlannedFile{job.layout.long_variable("rank_command"), std::move(text)};
}

PlannedCommand by_mpirun(const Program& program) {
  const auto& [job, facts, outline, entry, arguments, port] = program;
  const bool smddp = outline.runner.kind == Runner::kSmddp;
  PlannedCommand result;
  result.user_command = rank_command(entry, facts.python, facts.has_mpi4py, arguments);
  if (!facts.has_mpi4py && entry.is_python()) {
    result.warnings.push_back(fmt::format(
        "{} has no mpi4py: an uncaught exception ends the other ranks only when its process ends",
        facts.python.string()));
  }
  if (smddp && !facts.has_smddprun) {
    result.notes.emplace_back("smddprun not being used as smddp is not installed");
  }
  result.file = file_of_long_command(result.user_command, job);
  if (result.file) {
    result.warnings.push_back(
        fmt::format("the command of a rank has {} bytes, more than Open MPI passes on: ranks take "
                    "it from {}",
                    result.file->content.size(), result.file->path.string()));
  }
  if (outline.runner.role != Role::kMaster) return result;
  const MpiCommandInput input{
      .job = job,
      .facts = facts,
      .outline = outline,
      .command = result.user_command,
      .command_file = result.file ? result.file->path : std::filesystem::path()};
  MpiCommand command = smddp ? make_smddp_command(input) : make_mpi_command(input);
  result.argv = std::move(command.argv);
  append(result.notes, command.notes);
  return result;
}

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

// The name comes as an argument, so that no text of the user's becomes code. The module is called
// as the reference does it from its own `train`, which is what sys.argv then says.
constexpr const char* kModuleCaller =
    "import importlib, sys; module, function = sys.argv.pop().split(':'); sys.argv[0] = 'train'; "
    "getattr(importlib.import_module(module), function)()";

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

PlannedCommand by_torchrun(const Program& program) {
  refuse_other_kinds(program.entry);
  const std::vector<std::string>& hosts = program.outline.runner.hosts;
  Words words;
  if (smp::value_or(program.job.environment, "RUN_NEURON_PARALLEL_COMPILE") == "1") {
    words.emplace_back("neuron_parallel_compile");
  }
  append(words, torchrun_program(program.job, program.facts));
  append(words, {"--nnodes", std::to_string(hosts.size()), "--nproc_per_node",
                 std::to_string(program.outline.runner.processes_per_host)});
  const bool several_hosts = hosts.size() > 1;
  if (several_hosts) {
    const auto& variables = program.outline.environment.variables;
    append(words, {"--master_addr", *find_variable(variables, "MASTER_ADDR")});
  }
  // On one host, too: torchrun would take a port of its own, whatever the environment says.
  append(words, {"--master_port", program.port});
  if (several_hosts) {
    const auto node = std::ranges::find(hosts, program.job.current_host());
    append(words, {"--node_rank", std::to_string(node - hosts.begin())});
  }
  append(words, program.entry.module.empty() ? Words{program.entry.name}
                                             : Words{"-m", program.entry.module});
  append(words, program.arguments);
  return {.argv = words, .user_command = words};
}

}  // namespace

std::vector<std::string> process_command(const EntryPoint& entry,
                                         const std::filesystem::path& python,
                                         const std::vector<std::string>& arguments) {
  Words words;
  switch (entry.kind) {
    case EntryPointKind::kNone:
      break;
    case EntryPointKind::kProgram:
      words = {python.string(), "--", entry.name};
      break;
    case EntryPointKind::kPackage:
    case EntryPointKind::kModule:
      words = {python.string(), "-m", entry.module};
      break;
    case EntryPointKind::kCommand: {
      // The blank stays without arguments, too: logs and failure texts compare equal.
      const std::string program = "./" + entry.name;
      std::string text = shell_quote(program) + " " + shell_join(arguments);
      if (text.size() <= kLongestArgumentBytes) return {"/bin/sh", "-c", std::move(text)};
      words = {"/bin/sh", "-c", shell_quote(program) + " \"$@\"", program};
      break;
    }
    case EntryPointKind::kExecutable:
      words = {entry.name.front() == '/' ? entry.name : "./" + entry.name};
      break;
  }
  append(words, arguments);
  return words;
}

std::vector<std::string> rank_command(const EntryPoint& entry, const std::filesystem::path& python,
                                      bool has_mpi4py, const std::vector<std::string>& arguments) {
  if (!entry.is_python()) return process_command(entry, python, arguments);
  Words words{python.string()};
  if (has_mpi4py) append(words, {"-m", "mpi4py"});
  append(words, entry.module.empty() ? Words{entry.name} : Words{"-m", entry.module});
  append(words, arguments);
  return words;
}

std::vector<std::string> make_training_module_command(const std::string& module,
                                                      const std::filesystem::path& python) {
  const std::size_t colon = module.find(':');
  const bool is_pair = colon != std::string::npos && colon > 0 && colon + 1 < module.size() &&
                       module.find(':', colon + 1) == std::string::npos;
  if (!is_pair) {
    throw smp::ConfigError(
        "SAGEMAKER_TRAINING_MODULE={}: expected module:function, for example "
        "sagemaker_sklearn_container.training:main; correct or unset it",
        module);
  }
  if (python.empty()) {
    throw smp::ConfigError(
        "SAGEMAKER_TRAINING_MODULE={}: needs Python, and neither python3 nor python is on PATH; "
        "set SM_LAUNCH_PYTHON to an interpreter",
        module);
  }
  return {python.string(), "-c", kModuleCaller, module};
}

PlannedCommand plan_command(const Program& program) {
  switch (program.outline.runner.kind) {
    case Runner::kMpi:
    case Runner::kSmddp:
      return by_mpirun(program);
    case Runner::kTorchrun:
      return by_torchrun(program);
    case Runner::kProcess:
    case Runner::kTrainingModule:
      break;
  }
  const Words argv = process_command(program.entry, program.facts.python, program.arguments);
  return {.argv = argv, .user_command = argv};
}

void check_torchrun(const JobConfig& job, const HostFacts& facts, const EntryPoint& entry) {
  refuse_other_kinds(entry);
  torchrun_program(job, facts);
}

}  // namespace entrypoint
