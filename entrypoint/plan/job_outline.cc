// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/job_outline.h"

#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/planned_command.h"

namespace entrypoint {
namespace {

constexpr std::string_view kSmddpOptionsSource =
    "hyperparameter \"sagemaker_distributed_dataparallel_custom_mpi_options\"";

std::string_view options_source(Runner runner) {
  return runner == Runner::kSmddp ? kSmddpOptionsSource : kMpiOptionsSource;
}

CustomMpiOptions read_mpi_options(const JobConfig& job, const RunnerChoice& choice) {
  if (!choice.runs_mpirun()) return {};
  const bool smddp = choice.kind == Runner::kSmddp;
  return parse_custom_mpi_options(
      smddp ? job.distribution.custom_smddp_options : job.distribution.custom_mpi_options,
      job.environment, options_source(choice.kind));
}

int count_processes(const JobConfig& job, const RunnerChoice& choice,
                    const CustomMpiOptions& options) {
  if (!choice.starts_ranks()) return static_cast<int>(choice.hosts.size());
  if (const auto count = process_count(options.options, options_source(choice.kind))) return *count;
  const bool counts = choice.kind == Runner::kMpi;  // the hyperparameter is MPI's
  return counts ? job.distribution.total_processes.value_or(choice.slots()) : choice.slots();
}

std::optional<PackageRepository> find_package_repository(const JobConfig& job) {
  const std::string arn = smp::value_or(job.environment, "CA_REPOSITORY_ARN");
  if (arn.empty()) return std::nullopt;
  return parse_package_repository(arn);
}

/// An entry point that can be none, as far as its name alone tells.
void refuse_by_name(const JobConfig& job, const HostFacts& facts, Runner runner) {
  if (runner == Runner::kTrainingModule) {
    make_training_module_command(*job.program.framework_module, facts.python);
    return;
  }
  const EntryPoint entry = resolve_entry_point(job, facts.python);
  if (runner == Runner::kTorchrun) check_torchrun(job, facts, entry);
}

}  // namespace

JobOutline outline_job(const JobConfig& job, const HostFacts& facts) {
  JobOutline outline{.cluster = job.cluster_text()};
  outline.runner = choose_runner(job, facts);
  outline.network = choose_network(job, facts, outline.runner);
  outline.arguments = user_arguments(job.files.hyperparameters.user, job.options.arguments,
                                     job.options.argument_order);
  outline.code = choose_code_source(job);
  if (outline.code.is_fetched()) refuse_by_name(job, facts, outline.runner.kind);
  outline.certificates = plan_certificates(job.environment, job.layout);
  outline.package_repository = find_package_repository(job);
  outline.checkpoints = job.files.checkpoints;
  outline.intermediate_output = choose_output_target(job);
  outline.parallel = read_parallel_settings(job, outline.runner.kind);
  outline.mpi_options = read_mpi_options(job, outline.runner);
  outline.ranks =
      lay_out_ranks(outline.runner, facts,
                    count_processes(job, outline.runner, outline.mpi_options), outline.parallel);
  outline.environment = make_program_environment({.job = job,
                                                  .facts = facts,
                                                  .network = outline.network,
                                                  .user_arguments = outline.arguments.words},
                                                 outline.runner, outline.certificates);
  return outline;
}

}  // namespace entrypoint
