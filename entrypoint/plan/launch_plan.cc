// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/launch_plan.h"

#include <utility>

#include <fmt/format.h>

#include "entrypoint/plan/gpu_driver.h"
#include "entrypoint/plan/mpirun_line.h"
#include "entrypoint/plan/start_check.h"
#include "entrypoint/plan/torchrun_command.h"
#include "entrypoint/plan/words.h"

namespace entrypoint {
namespace {

/// A program, and what this host knows of the job that it is started for.
struct Program {
  const JobConfig& job;
  const HostFacts& facts;
  const JobOutline& outline;
  const EntryPoint& entry;
  const Words& arguments;
  std::string port;  ///< of torchrun's rendezvous
};

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

PlannedCommand command_of(const Program& program) {
  switch (program.outline.runner.kind) {
    case Runner::kMpi:
    case Runner::kSmddp:
      return by_mpirun(program);
    case Runner::kTorchrun: {
      const Words argv = make_torchrun_command({.job = program.job,
                                                .facts = program.facts,
                                                .outline = program.outline,
                                                .entry = program.entry,
                                                .port = program.port,
                                                .arguments = program.arguments});
      return {.argv = argv, .user_command = argv};
    }
    case Runner::kProcess:
    case Runner::kTrainingModule:
      break;
  }
  const Words argv = process_command(program.entry, program.facts.python, program.arguments);
  return {.argv = argv, .user_command = argv};
}

PlannedCommand module_command(const JobConfig& job, const HostFacts& facts) {
  const Words argv = make_training_module_command(*job.framework_module, facts.python);
  return {.argv = argv, .user_command = argv};
}

StartCheck make_check(const JobConfig& job, const HostFacts& facts, const JobOutline& outline,
                      const std::string& port) {
  const EntryPoint entry = check_entry_point();
  const Words arguments = check_arguments(job.options.check);
  PlannedCommand command = command_of({.job = job,
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
  if (!outline.runner.starts_ranks()) add(warnings, one_process_warning(outline.parallel.config));
  append(warnings, left_out_warnings(outline));
  return warnings;
}

Words notes_of(const JobConfig& job, const LaunchPlan& plan) {
  const JobOutline& outline = plan.outline;
  Words notes = outline.runner.notes;
  append(notes, plan.entry.notes);
  add(notes, fetch_note(job));
  if (!plan.entry.install.empty() && job.hosts.size() > 1) {
    notes.emplace_back(
        "each host installs packages for itself, so hosts reach the meeting point one after the "
        "other");
  }
  append(notes, outline.network.notes);
  append(notes, outline.parallel.notes);
  append(notes, outline.environment.notes);
  append(notes, plan.command.notes);
  if (!outline.certificates) return notes;
  for (const std::string& name : outline.certificates->kept) {
    notes.push_back(fmt::format("{}={} is kept: what reads it trusts no SMP_EXTRA_CA_FILE", name,
                                value_or(job.environment, name)));
  }
  return notes;
}

}  // namespace

LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts, JobOutline decided) {
  LaunchPlan plan{.outline = std::move(decided)};
  const JobOutline& outline = plan.outline;
  const std::string& port = *find_variable(outline.environment.variables, "MASTER_PORT");
  if (outline.runner.kind == Runner::kTrainingModule) {
    plan.command = module_command(job, facts);
  } else {
    plan.entry = resolve_entry_point(job, facts.python);
    plan.command = command_of({.job = job,
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

}  // namespace entrypoint
