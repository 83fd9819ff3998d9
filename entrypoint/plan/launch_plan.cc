// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/launch_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/plan/arguments.h"
#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/gpu_driver.h"
#include "entrypoint/plan/job_network.h"
#include "entrypoint/plan/mpi_command.h"
#include "entrypoint/plan/mpi_options.h"
#include "entrypoint/plan/parallel_check.h"
#include "entrypoint/plan/runner_choice.h"
#include "entrypoint/plan/shared_memory.h"
#include "entrypoint/plan/smddp_command.h"
#include "entrypoint/plan/start_check.h"
#include "entrypoint/plan/torchrun_command.h"
#include "entrypoint/plan/training_module_command.h"
#include "entrypoint/plan/words.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

/// Those of a launcher around us: processes of another launcher inside would take themselves for
/// its.
bool speaks_of_outer_rank(std::string_view name) {
  return name.starts_with("PMIX_") || name.starts_with("PMI_");
}

constexpr std::string_view kSmddpOptionsSource =
    "hyperparameter \"sagemaker_distributed_dataparallel_custom_mpi_options\"";

class Planner {
 public:
  Planner(const JobConfig& job, const HostFacts& facts) : job_(job), facts_(facts) {}

  LaunchPlan plan() {
    plan_.warnings = job_.warnings;
    plan_.current_host = job_.current_host();
    plan_.master = job_.master;
    plan_.cluster = job_.cluster_text();
    plan_.cluster_serves_hosts = job_.cluster_serves_hosts();
    plan_.working_directory = job_.layout.code();
    RunnerChoice choice = choose_runner(job_, facts_);
    network_ = choose_network(job_, facts_, choice);
    take(std::move(choice));

    UserArguments arguments = user_arguments(job_.hyperparameters.user, job_.options.arguments,
                                             job_.options.argument_order);
    arguments_ = std::move(arguments.words);
    if (plan_.runner != Runner::kTrainingModule) take(resolve_entry_point(job_, facts_.python));
    plan_transfers();
    if (auto warning = driver_warning(facts_.gpu_driver, facts_.torch_version)) {
      plan_.warnings.push_back(std::move(*warning));
    }

    note(network_.notes);
    warn(network_.warnings);
    plan_.interface_name = network_.interface_name;
    const ParallelSettings parallel = read_parallel_settings(job_, plan_.runner);
    note(parallel.notes);
    if (parallel.config) warn(parallel.config->warnings);
    plan_command(parallel.config);
    trust_certificates();
    for (const std::string& name : arguments.left_out) warn_of_left_out(name);
    return std::move(plan_);
  }

 private:
  using ParallelConfig = std::optional<smp::topology::ParallelConfig>;

  void note(const std::vector<std::string>& lines) {
    plan_.notes.insert(plan_.notes.end(), lines.begin(), lines.end());
  }
  void warn(const std::vector<std::string>& lines) {
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  }

  void take(RunnerChoice choice) {
    plan_.runner = choice.runner;
    plan_.role = choice.role;
    plan_.reason = std::move(choice.reason);
    plan_.hosts = std::move(choice.hosts);
    plan_.processes_per_host = choice.processes_per_host;
    note(choice.notes);
    warn(choice.warnings);
  }

  void take(EntryPoint entry) {
    plan_.entry_point_kind = entry.kind;
    plan_.install = entry.install;
    plan_.make_executable = entry.make_executable;
    note(entry.notes);
    warn(entry.warnings);
    entry_ = std::move(entry);
  }

  void plan_transfers() {
    plan_.code = choose_code_source(job_);
    if (const auto warning = skipped_fetch_warning(job_)) {
      plan_.warnings.push_back(*warning);
    } else if (!plan_.code.is_fetched() && !job_.names_code_folder() && !job_.code.fetched) {
      plan_.notes.push_back(fmt::format("{} holds code, so {} is not fetched",
                                        job_.layout.code().string(), job_.module_dir));
    }
    if (plan_.code.is_fetched()) {
      plan_.notes.push_back(
          "the code is not here yet: a setup.py or requirements.txt in it will change what is "
          "installed, a setup.py also how it is run");
    }
    if (const std::string arn = value_or(job_.environment, "CA_REPOSITORY_ARN"); !arn.empty()) {
      plan_.package_repository = parse_package_repository(arn);
    }
    if (!plan_.install.empty() && job_.hosts.size() > 1) {
      plan_.notes.push_back(
          "each host installs packages for itself, so hosts reach the meeting point one after the "
          "other");
    }
    plan_.intermediate_output = choose_output_target(job_);
  }

  void trust_certificates() {
    plan_.certificates = plan_certificates(job_.environment, job_.layout);
    if (!plan_.certificates) return;
    for (const std::string& name : plan_.certificates->variables) {
      set_variable(plan_.environment, name, plan_.certificates->joined.string());
    }
    for (const std::string& name : plan_.certificates->kept) {
      plan_.notes.push_back(fmt::format("{}={} is kept: what reads it trusts no SMP_EXTRA_CA_FILE",
                                        name, value_or(job_.environment, name)));
    }
  }

  void warn_of_left_out(const std::string& name) {
    const std::string variable = hyperparameter_variable(name);
    const bool is_short = find_variable(plan_.environment, variable) != nullptr;
    plan_.warnings.push_back(fmt::format(
        "hyperparameter \"{}\" is not sent as an argument: one holds at most {} bytes, and all "
        "together get {}; read {}",
        name, kLongestArgumentBytes, kAllArgumentsBytes,
        is_short ? variable : "the file that " + variable + "_FILE names"));
  }

  void plan_command(const ParallelConfig& parallel) {
    switch (plan_.runner) {
      case Runner::kProcess:
        return plan_process(process_command(entry_, facts_.python, arguments_), parallel);
      case Runner::kMpi:
      case Runner::kSmddp:
        return plan_mpirun(parallel);
      case Runner::kTorchrun:
        return plan_torchrun(parallel);
      case Runner::kTrainingModule:
        return plan_process(make_training_module_command(*job_.framework_module, facts_.python),
                            parallel);
    }
  }

  JobEnvironment set_environment() {
    JobEnvironment environment = make_environment({.job = job_,
                                                   .facts = facts_,
                                                   .user_arguments = arguments_,
                                                   .master_address = network_.master_address,
                                                   .interface_name = network_.interface_name,
                                                   .gloo_interface = network_.gloo_interface,
                                                   .efa = network_.efa.enabled});
    plan_.training_environment = environment.training_environment;
    plan_.environment = environment.table;
    plan_.environment.insert(plan_.environment.end(), environment.others.begin(),
                             environment.others.end());
    plan_.files = environment.files;
    for (const PlannedFile& file : plan_.files) {
      // The inherited variable of that name would be another job's or the user's.
      plan_.unset.push_back(file.path.filename().string());
    }
    note(environment.notes);
    warn(environment.warnings);
    return environment;
  }

  /// mpirun and torchrun inside of what an engine started.
  void leave_engine() {
    const bool dotted = std::ranges::any_of(
        plan_.hosts, [](const std::string& host) { return host.find('.') != std::string::npos; });
    if (job_.hosts_by_cluster && dotted && plan_.runs_mpirun()) {
      // Or mpirun would cut the names off at the dot, and ssh know no such host.
      set_variable(plan_.environment, "OMPI_MCA_orte_keep_fqdn_hostnames", "true");
    }
    if (!job_.cluster || job_.cluster->cluster != Cluster::kSlurm) return;
    for (const auto& [name, value] : job_.environment) {
      if (speaks_of_outer_rank(name)) plan_.unset.push_back(name);
    }
    if (!plan_.runs_mpirun()) return;
    // Open MPI would take the allocation's slots, which this step fills, and start its daemons by
    // srun; by the environment, for the command line is as the documentation shows it.
    for (const auto& [name, value] :
         {std::pair{"OMPI_MCA_plm", "rsh"}, {"OMPI_MCA_ras", "^slurm"}}) {
      if (value_or(job_.environment, name).empty()) set_variable(plan_.environment, name, value);
    }
  }

  bool is_checked() {
    if (job_.options.check == CheckPolicy::kOff) return false;
    if (!facts_.torch_version.empty()) return true;
    plan_.warnings.push_back(unchecked_warning(facts_));
    return false;
  }

  void set_check(Words argv) {
    plan_.check = {.argv = std::move(argv),
                   .fails_job = job_.options.check == CheckPolicy::kStrict};
  }

  /// One process a host.
  void plan_process(Words argv, const ParallelConfig& parallel) {
    plan_.total_processes = static_cast<int>(plan_.hosts.size());
    set_environment();
    set_preload();
    set_fabric();
    plan_.argv = std::move(argv);
    plan_.user_command = plan_.argv;
    if (is_checked()) {
      set_check(
          process_command(check_entry_point(), facts_.python, check_arguments(job_.options.check)));
    }
    if (auto warning = one_process_warning(parallel)) {
      plan_.warnings.push_back(std::move(*warning));
    }
  }

  void plan_mpirun(const ParallelConfig& parallel) {
    const Distribution& distribution = job_.distribution;
    const bool smddp = plan_.runner == Runner::kSmddp;
    const std::string_view source = smddp ? kSmddpOptionsSource : kMpiOptionsSource;
    const CustomMpiOptions custom = parse_custom_mpi_options(
        smddp ? distribution.custom_smddp_options : distribution.custom_mpi_options,
        job_.environment, source);
    plan_.total_processes =
        process_count(custom.options, source)
            .value_or(smddp ? slots() : distribution.total_processes.value_or(slots()));
    place(parallel);
    if (plan_.total_processes > slots() && !smddp) {
      plan_.warnings.push_back(fmt::format(
          "{} processes for {} slots ({} hosts of {}): mpirun refuses unless its options say "
          "--oversubscribe",
          plan_.total_processes, slots(), plan_.hosts.size(), plan_.processes_per_host));
    }

    const JobEnvironment environment = set_environment();
    leave_engine();
    set_thread_share();
    set_preload();
    for (const Variable& variable : plan_.environment) {
      if (is_host_variable(variable.name)) plan_.host_environment.push_back(variable);
    }

    plan_.user_command = rank_command(entry_, facts_.python, facts_.has_mpi4py, arguments_);
    if (!facts_.has_mpi4py && entry_.is_python()) {
      plan_.warnings.push_back(fmt::format(
          "{} has no mpi4py: an uncaught exception ends the other ranks only when its process ends",
          facts_.python.string()));
    }
    if (smddp && !facts_.has_smddprun) {
      plan_.notes.push_back("smddprun not being used as smddp is not installed");
    }
    const std::filesystem::path command_file = move_long_command();
    if (plan_.role != Role::kMaster) return;
    MpiCommandInput input{.job = job_,
                          .facts = facts_,
                          .custom = custom,
                          .efa = network_.efa,
                          .hosts = plan_.hosts,
                          .processes_per_host = plan_.processes_per_host,
                          .total_processes = plan_.total_processes,
                          .interface_name = plan_.interface_name,
                          .table = environment.table,
                          .others = environment.others,
                          .command = plan_.user_command,
                          .command_file = command_file};
    const auto make_command = smddp ? make_smddp_command : make_mpi_command;
    MpiCommand command = make_command(input);
    plan_.argv = std::move(command.argv);
    note(command.notes);
    if (!is_checked()) return;
    input.command = rank_command(check_entry_point(), facts_.python, facts_.has_mpi4py,
                                 check_arguments(job_.options.check));
    input.command_file.clear();
    set_check(make_command(input).argv);
  }

  /// Open MPI gives each rank its own command as one variable, OMPI_ARGV, which Linux limits. Where
  /// that is too long, every host writes the command to a file for its ranks, and it is returned.
  std::filesystem::path move_long_command() {
    constexpr std::size_t kRoomForRankExec = 4096;
    std::string text;
    for (const std::string& word : plan_.user_command) text.append(word).push_back('\0');
    if (text.size() + kRoomForRankExec <= kLongestArgumentBytes) return {};
    PlannedFile file{job_.layout.long_variable("rank_command"), std::move(text)};
    plan_.warnings.push_back(
        fmt::format("the command of a rank has {} bytes, more than Open MPI passes on: ranks take "
                    "it from {}",
                    file.content.size(), file.path.string()));
    plan_.files.push_back(std::move(file));
    return plan_.files.back().path;
  }

  void plan_torchrun(const ParallelConfig& parallel) {
    plan_.total_processes = slots();
    place(parallel);
    set_environment();
    leave_engine();
    set_thread_share();
    set_preload();
    set_fabric();
    const auto make_command = [this](const EntryPoint& entry, std::string port, Words arguments) {
      return make_torchrun_command(
          {.job = job_,
           .facts = facts_,
           .entry = entry,
           .hosts = plan_.hosts,
           .processes_per_host = plan_.processes_per_host,
           .master_address = *find_variable(plan_.environment, "MASTER_ADDR"),
           .master_port = std::move(port),
           .arguments = std::move(arguments)});
    };
    const std::string& port = *find_variable(plan_.environment, "MASTER_PORT");
    plan_.argv = make_command(entry_, port, arguments_);
    plan_.user_command = plan_.argv;
    if (!is_checked()) return;
    set_check(
        make_command(check_entry_point(), port_beside(port), check_arguments(job_.options.check)));
  }

  [[nodiscard]] int slots() const {
    return plan_.processes_per_host * static_cast<int>(plan_.hosts.size());
  }

  void place(const ParallelConfig& parallel) {
    if (facts_.num_gpus > 0 && plan_.processes_per_host > facts_.num_gpus) {
      plan_.warnings.push_back(
          fmt::format("{} processes per host, but host {} has {} GPUs: processes will share GPUs "
                      "or fail; lower "
                      "sagemaker_mpi_num_of_processes_per_host",
                      plan_.processes_per_host, plan_.current_host, facts_.num_gpus));
    }
    plan_.ranks = place_ranks(parallel, plan_.hosts, plan_.processes_per_host,
                              plan_.total_processes, plan_.warnings);
  }

  void set_thread_share() {
    if (!value_or(job_.environment, "OMP_NUM_THREADS").empty()) return;
    const int share = std::max(facts_.num_cpus / plan_.processes_per_host, 1);
    set_variable(plan_.environment, "OMP_NUM_THREADS", std::to_string(share));
    plan_.notes.push_back(fmt::format(
        "OMP_NUM_THREADS is not set: each rank of this host gets {} ({} CPUs, {} processes)", share,
        facts_.num_cpus, plan_.processes_per_host));
  }

  /// mpirun has to see the name that --host gives to this host, NCCL that hosts differ.
  void set_preload() {
    if (auto warning = shared_memory_warning(job_, facts_)) {
      plan_.warnings.push_back(std::move(*warning));
    }
    if (facts_.hostname_shim.empty()) return;
    const std::string own = value_or(job_.environment, "LD_PRELOAD");
    const std::string shim = facts_.hostname_shim.string();
    set_variable(plan_.environment, "LD_PRELOAD", own.empty() ? shim : shim + ":" + own);
  }

  void set_fabric() {
    for (const Variable& variable : fabric_variables(network_.efa, job_.environment)) {
      set_variable(plan_.environment, variable.name, variable.value);
    }
  }

  const JobConfig& job_;
  const HostFacts& facts_;
  LaunchPlan plan_;
  JobNetwork network_;
  EntryPoint entry_;
  std::vector<std::string> arguments_;
};

}  // namespace

LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts) {
  return Planner(job, facts).plan();
}

}  // namespace entrypoint
