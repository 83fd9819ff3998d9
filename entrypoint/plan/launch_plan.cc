// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/launch_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/plan/arguments.h"
#include "entrypoint/plan/entry_point.h"
#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/mpi_command.h"
#include "entrypoint/plan/mpi_options.h"
#include "entrypoint/plan/parallel_check.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

constexpr std::string_view kPyTorchModule = "sagemaker_pytorch_container.training:main";

EfaSwitch as_switch(EfaPolicy policy) {
  switch (policy) {
    case EfaPolicy::kOn:
      return EfaSwitch::kOn;
    case EfaPolicy::kOff:
      return EfaSwitch::kOff;
    case EfaPolicy::kAuto:
      break;
  }
  return EfaSwitch::kAuto;
}

class Planner {
 public:
  Planner(const JobConfig& job, const HostFacts& facts) : job_(job), facts_(facts) {}

  LaunchPlan plan() {
    check_available();
    plan_.warnings = job_.warnings;
    plan_.current_host = job_.current_host();
    plan_.master = job_.master;
    plan_.working_directory = job_.layout.code();
    choose_runner();

    EntryPoint entry = resolve_entry_point(job_, facts_.python);
    arguments_ =
        user_arguments(job_.hyperparameters.user, job_.knobs.arguments, job_.knobs.argument_order);
    plan_.entry_point_kind = entry.kind;
    plan_.install = std::move(entry.install);
    plan_.make_executable = std::move(entry.make_executable);
    note(entry.notes);
    tell_what_is_left_undone();

    choose_network();
    const auto parallel = read_parallel_config(job_);
    if (parallel) warn(parallel->warnings);
    if (plan_.runner == Runner::kMpi) {
      plan_mpi(entry, parallel);
    } else {
      plan_process(entry, parallel);
    }
    check_lengths();
    return std::move(plan_);
  }

 private:
  void note(const std::vector<std::string>& lines) {
    plan_.notes.insert(plan_.notes.end(), lines.begin(), lines.end());
  }
  void warn(const std::vector<std::string>& lines) {
    plan_.warnings.insert(plan_.warnings.end(), lines.begin(), lines.end());
  }

  /// What the specification knows and this version does not do is refused by name.
  void check_available() const {
    constexpr std::string_view kNotYet = "is not available yet in this version";
    if (job_.framework_module && *job_.framework_module != kPyTorchModule) {
      throw smp::ConfigError("SAGEMAKER_TRAINING_MODULE={}: this module {}; unset it, or set {}",
                             *job_.framework_module, kNotYet, kPyTorchModule);
    }
    if (job_.knobs.code == CodePolicy::kReplace) {
      throw smp::ConfigError("SM_LAUNCH_CODE=replace: fetching code {}; put the code into {}",
                             kNotYet, job_.layout.code().string());
    }
    if (!value_or(job_.environment, "CA_REPOSITORY_ARN").empty()) {
      throw smp::ConfigError("CA_REPOSITORY_ARN: CodeArtifact as pip's index {}; set PIP_INDEX_URL",
                             kNotYet);
    }
  }

  /// What is harmless to leave undone is said once.
  void tell_what_is_left_undone() {
    if (!job_.names_code_folder()) {
      plan_.notes.push_back(
          fmt::format("the code folder is used as it is: {} is not fetched", job_.module_dir));
    }
    if (job_.hyperparameters.reserved.find("sagemaker_s3_output") != nullptr) {
      plan_.warnings.push_back(
          "sagemaker_s3_output: uploading intermediate output is not available yet in this "
          "version");
    }
  }

  /// A shell script gets all its arguments in one.
  void check_lengths() const {
    const auto longest = std::ranges::max_element(plan_.user_command, {}, &std::string::size);
    if (longest->size() <= kLongestArgumentBytes) return;
    throw smp::ConfigError(
        "the command line of \"{}\" has {} bytes in one argument, Linux allows {}; put long "
        "hyperparameters into a file of a channel",
        job_.entry_point, longest->size(), kLongestArgumentBytes);
  }

  [[noreturn]] static void refuse_runner(std::string_view runner, std::string_view flag) {
    throw smp::ConfigError(
        "the {} runner, asked for by {}=true, is not available yet in this version; use MPI "
        "(sagemaker_mpi_enabled) or a plain process",
        runner, flag);
  }

  void choose_runner() {
    const Distribution& distribution = job_.distribution;
    plan_.hosts = job_.hosts;
    if (!distribution.current_group_takes_part) {
      plan_.reason =
          distribution.groups.empty()
              ? "no distribution is asked for: a plain process on every host"
              : fmt::format("group {} takes no part in the distribution: a plain process",
                            job_.resources.current_group_name);
      return;
    }
    if (distribution.mpi) {
      plan_.runner = Runner::kMpi;
      plan_.reason = "sagemaker_mpi_enabled is true: MPI";
      plan_.hosts = distribution.hosts;
      plan_.role = job_.is_master() ? Role::kMaster : Role::kWorker;
      plan_.processes_per_host = processes_per_host();
      return;
    }
    if (distribution.pytorch_ddp) refuse_runner("SMDDP", "sagemaker_pytorch_ddp_enabled");
    if (distribution.torch_distributed) {
      refuse_runner("torchrun", "sagemaker_torch_distributed_enabled");
    }
    if (distribution.data_parallel) {
      refuse_runner("SMDDP", "sagemaker_distributed_dataparallel_enabled");
    }
    if (distribution.pytorch_xla) {
      refuse_runner("PyTorch-XLA", "sagemaker_pytorch_xla_multi_worker_enabled");
    }
    plan_.reason = "the distribution asked for is not PyTorch's: a plain process on every host";
  }

  [[nodiscard]] int processes_per_host() const {
    if (job_.distribution.processes_per_host) return *job_.distribution.processes_per_host;
    if (facts_.num_gpus > 0) return facts_.num_gpus;
    return std::max(facts_.num_neurons, 1);
  }

  void choose_network() {
    const bool several_hosts = plan_.hosts.size() > 1;
    const InterfaceChoice choice =
        choose_interface({.current_host = job_.current_host(),
                          .configured = job_.resources.network_interface_name,
                          .interfaces = facts_.interfaces,
                          .route = facts_.route_interface,
                          .several_hosts = several_hosts});
    plan_.interface_name = choice.name;
    if (!choice.warning.empty())
      (several_hosts ? plan_.warnings : plan_.notes).push_back(choice.warning);

    gloo_interface_ = choice.name;
    const auto loopback = std::ranges::find(facts_.interfaces, true, &Interface::loopback);
    if (gloo_interface_.empty() && loopback != facts_.interfaces.end()) {
      gloo_interface_ = loopback->name;
    }
    master_address_ = job_.master;
    if (!several_hosts && !facts_.current_host_resolves) {
      master_address_ = "127.0.0.1";
      plan_.notes.push_back(fmt::format("host name {} has no address here: MASTER_ADDR is {}",
                                        job_.master, master_address_));
    }
    if (plan_.runner == Runner::kProcess) return;
    efa_ = decide_efa(job_.resources.current_instance_type, facts_.efa, as_switch(job_.knobs.efa));
    plan_.notes.push_back(efa_.reason);
    if (!efa_.warning.empty()) plan_.warnings.push_back(efa_.warning);
  }

  JobEnvironment set_environment() {
    JobEnvironment environment = make_environment({.job = job_,
                                                   .facts = facts_,
                                                   .user_arguments = arguments_,
                                                   .master_address = master_address_,
                                                   .interface_name = plan_.interface_name,
                                                   .gloo_interface = gloo_interface_,
                                                   .efa = efa_.enabled});
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

  void plan_process(const EntryPoint& entry,
                    const std::optional<smp::topology::ParallelConfig>& parallel) {
    plan_.total_processes = static_cast<int>(plan_.hosts.size());
    const JobEnvironment environment = set_environment();
    if (!facts_.hostname_shim.empty()) set_preload();
    plan_.argv = process_command(entry, facts_.python, arguments_);
    plan_.user_command = plan_.argv;
    if (!parallel) return;
    const std::int64_t ranks_per_model =
        parallel->pipeline_parallel_degree * parallel->tensor_parallel_degree;
    if (ranks_per_model > 1 || parallel->sharded_data_parallel_degree > 1) {
      plan_.warnings.push_back(fmt::format(
          "mp_parameters ask for partitions={}, tensor_parallel_degree={}, "
          "sharded_data_parallel_degree={}, yet one process per host is started; enable MPI "
          "(sagemaker_mpi_enabled, sagemaker_mpi_num_of_processes_per_host)",
          parallel->pipeline_parallel_degree, parallel->tensor_parallel_degree,
          parallel->sharded_data_parallel_degree));
    }
  }

  void plan_mpi(const EntryPoint& entry,
                const std::optional<smp::topology::ParallelConfig>& parallel) {
    const CustomMpiOptions custom =
        parse_custom_mpi_options(job_.distribution.custom_mpi_options, job_.environment);
    const int slots = plan_.processes_per_host * static_cast<int>(plan_.hosts.size());
    plan_.total_processes =
        process_count(custom.options).value_or(job_.distribution.total_processes.value_or(slots));
    warn_of_counts(slots);
    plan_.ranks = place_ranks(parallel, plan_.hosts, plan_.processes_per_host,
                              plan_.total_processes, plan_.warnings);

    const JobEnvironment environment = set_environment();
    set_thread_share();
    if (!facts_.hostname_shim.empty()) set_preload();
    for (const Variable& variable : plan_.environment) {
      if (is_host_variable(variable.name)) plan_.host_environment.push_back(variable);
    }

    plan_.user_command = rank_command(entry, facts_.python, facts_.has_mpi4py, arguments_);
    if (!facts_.has_mpi4py && entry.kind != EntryPointKind::kCommand) {
      plan_.warnings.push_back(fmt::format(
          "{} has no mpi4py: an uncaught exception ends the other ranks only when its process ends",
          facts_.python.string()));
    }
    if (plan_.role != Role::kMaster) return;
    MpiCommand command = make_mpi_command({.job = job_,
                                           .facts = facts_,
                                           .custom = custom,
                                           .efa = efa_,
                                           .hosts = plan_.hosts,
                                           .processes_per_host = plan_.processes_per_host,
                                           .total_processes = plan_.total_processes,
                                           .interface_name = plan_.interface_name,
                                           .table = environment.table,
                                           .others = environment.others,
                                           .command = plan_.user_command});
    plan_.argv = std::move(command.argv);
    note(command.notes);
  }

  void warn_of_counts(int slots) {
    if (facts_.num_gpus > 0 && plan_.processes_per_host > facts_.num_gpus) {
      plan_.warnings.push_back(
          fmt::format("{} processes per host, but host {} has {} GPUs: processes will share GPUs "
                      "or fail; lower "
                      "sagemaker_mpi_num_of_processes_per_host",
                      plan_.processes_per_host, plan_.current_host, facts_.num_gpus));
    }
    if (plan_.total_processes > slots) {
      plan_.warnings.push_back(fmt::format(
          "{} processes for {} slots ({} hosts of {}): mpirun refuses unless its options say "
          "--oversubscribe",
          plan_.total_processes, slots, plan_.hosts.size(), plan_.processes_per_host));
    }
    if (job_.is_model_parallel() && job_.distribution.data_parallel) {
      plan_.warnings.push_back(
          "mp_parameters together with sagemaker_distributed_dataparallel_enabled=true is not "
          "supported: the MPI runner is taken and the latter has no effect");
    }
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
    const std::string own = value_or(job_.environment, "LD_PRELOAD");
    const std::string shim = facts_.hostname_shim.string();
    set_variable(plan_.environment, "LD_PRELOAD", own.empty() ? shim : shim + ":" + own);
  }

  const JobConfig& job_;
  const HostFacts& facts_;
  LaunchPlan plan_;
  std::vector<std::string> arguments_;
  std::string master_address_;
  std::string gloo_interface_;
  EfaDecision efa_;
};

}  // namespace

LaunchPlan make_launch_plan(const JobConfig& job, const HostFacts& facts) {
  return Planner(job, facts).plan();
}

}  // namespace entrypoint
