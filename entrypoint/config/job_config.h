// SPDX-License-Identifier: Apache-2.0
// A job as one value: its tree and its environment, read once and checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/cluster_resources.h"
#include "entrypoint/config/launch_options.h"
#include "entrypoint/config/process_environment.h"
#include "entrypoint/config/program_file.h"
#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/resource_config.h"
#include "opt_ml_layout/value.h"

namespace entrypoint {

/// SAGEMAKER_TRAINING_MODULE of every PyTorch image, Hugging Face's included: what `train` does
/// itself.
inline constexpr std::string_view kPyTorchModule = "sagemaker_pytorch_container.training:main";
/// The module by which Amazon's launcher hands a job over to `train` (smdistributed/training.py),
/// which then does the work of the module that it stands for.
inline constexpr std::string_view kHandOverModule = "smdistributed.training:main";

/// The distributed runners that the job asks for; the plan picks one. Names as in hyperparameters.
struct Distribution {
  bool mpi = false;                       ///< sagemaker_mpi_enabled
  bool pytorch_ddp = false;               ///< sagemaker_pytorch_ddp_enabled
  bool torch_distributed = false;         ///< sagemaker_torch_distributed_enabled
  bool data_parallel = false;             ///< sagemaker_distributed_dataparallel_enabled
  bool pytorch_xla = false;               ///< sagemaker_pytorch_xla_multi_worker_enabled
  std::optional<int> processes_per_host;  ///< sagemaker_mpi_num_of_processes_per_host
  std::optional<int> total_processes;     ///< sagemaker_mpi_num_processes
  std::string custom_mpi_options;         ///< sagemaker_mpi_custom_mpi_options
  std::string custom_smddp_options;       ///< sagemaker_distributed_dataparallel_custom_mpi_options
  std::string instance_type;              ///< sagemaker_instance_type; empty when not given
  bool native_launcher = false;           ///< sagemaker_toolkit_native_launcher_enabled

  std::vector<std::string> groups;  ///< instance groups that take part
  std::vector<std::string> hosts;   ///< hosts of these groups in rank order; may be empty
  bool current_group_takes_part = false;
};

/// The content of <base>/code as far as the plan needs it, read once.
struct CodeFolder {
  std::vector<std::string> entries;     ///< names at the top level, sorted
  bool fetched = false;                 ///< this run has put them there
  bool entry_point_exists = false;      ///< as a file, relative to the folder, or a module there
  bool entry_point_escapes = false;     ///< its real path lies outside the folder
  bool entry_point_in_package = false;  ///< each folder on its path is a Python package
  /// The module that it is within its package, if its own folder is one: "package.train".
  std::string entry_point_module;
  std::string nested_requirements;  ///< requirements.txt beside it, below the top level; or empty
  ProgramFile program;              ///< the entry point, in the folder or in the image

  [[nodiscard]] bool has(std::string_view name) const;
};

struct JobConfig {
  opt_ml::Layout layout;
  opt_ml::ResourceConfig resources;
  std::optional<ClusterJob> cluster;  ///< whose engine started the job
  bool hosts_by_cluster = false;      ///< its engine says the hosts, for the tree does not
  opt_ml::DataChannels channels;
  opt_ml::Hyperparameters hyperparameters;
  EnvironmentMap environment;  ///< this process's, as read
  LaunchOptions options;

  std::string entry_point;                       ///< SM_USER_ENTRY_POINT; empty when none is set
  std::string module_dir;                        ///< sagemaker_submit_directory, else <base>/code
  std::string job_name;                          ///< hyperparameter sagemaker_job_name
  std::optional<std::string> training_job_name;  ///< variable TRAINING_JOB_NAME
  std::string region;  ///< hyperparameter, else AWS_DEFAULT_REGION, else the AWS profile's
  std::optional<std::string> framework_module;  ///< SAGEMAKER_TRAINING_MODULE
  std::filesystem::path tensorboard_folder;     ///< by the job's TensorBoardOutputConfig; or empty
  int log_level = 20;
  CodeFolder code;
  bool intermediate_output_exists = false;  ///< <base>/output/intermediate was there

  Distribution distribution;
  std::vector<std::string> hosts;  ///< all hosts, file order or sorted as the option says
  std::string master;              ///< first distribution host, else first host
  std::string master_port;         ///< of the rendezvous
  opt_ml::Value mp_parameters;     ///< object, or text `k=v,…`; null: none

  std::vector<std::string> warnings;

  [[nodiscard]] const std::string& current_host() const { return resources.current_host; }
  [[nodiscard]] bool is_master() const {
    return cluster_serves_hosts() || resources.current_host == master;
  }
  /// No `train` runs on the other hosts but an sshd of the engine's, as on the workers of an
  /// MPIJob: this one starts the ranks of all.
  [[nodiscard]] bool cluster_serves_hosts() const {
    return hosts_by_cluster && cluster->cluster == Cluster::kHostfile;
  }
  /// "Slurm job 7, 2 nodes (SLURM_STEP_NODELIST)", or why something else says the hosts; empty
  /// without an engine.
  [[nodiscard]] std::string cluster_text() const;
  /// And this host has no ranks itself, as most launchers.
  [[nodiscard]] bool launches_from_outside() const {
    return hosts_by_cluster && !cluster->host_number;
  }
  /// The machine may run other jobs beside this one, in the same network: no port is ours alone.
  [[nodiscard]] bool shares_hosts() const {
    return hosts_by_cluster && cluster->cluster == Cluster::kSlurm;
  }
  /// The code is to be taken from its folder as it is, not fetched from elsewhere.
  [[nodiscard]] bool names_code_folder() const;
  /// mp_parameters is there and not empty.
  [[nodiscard]] bool is_model_parallel() const;
};

/// The tree that SAGEMAKER_BASE_DIR names, else /opt/ml; always an absolute path.
opt_ml::Layout find_layout(const EnvironmentMap& environment);

/// The files of a tree, as read: what turns into a JobConfig without touching the disk again.
struct JobFiles {
  opt_ml::ResourceConfig resources;
  std::optional<ClusterJob> cluster;  ///< if an engine started the job
  bool hosts_by_cluster = false;      ///< `resources` are what it says
  std::filesystem::path mounted_key;  ///< of a launcher of MPI; empty elsewhere
  opt_ml::DataChannels channels;
  opt_ml::Hyperparameters hyperparameters;
  std::filesystem::path tensorboard_folder;
  std::string profile_region;  ///< of the AWS profile in use; empty when it names none
};

/// Pure, `code` aside. Throws ConfigError for values that make no job, naming the hyperparameter or
/// variable; settings that look like slips become warnings.
JobConfig make_job_config(const opt_ml::Layout& layout, JobFiles files, EnvironmentMap environment);

/// The module of an entry point "-m MODULE"; empty for files.
std::string module_of_entry_point(const std::string& entry_point);

/// Reads the code folder as it is now; the entry point as JobConfig names it, or empty.
/// `environment` says where the image has programs.
CodeFolder look_into_code(const opt_ml::Layout& layout, const std::string& entry_point,
                          const EnvironmentMap& environment);

/// The cluster whose nodes have to be asked for the job's hosts: its engine tells each the main
/// one's alone, and the tree names none. Throws ConfigError.
std::optional<ClusterJob> cluster_to_ask(const opt_ml::Layout& layout,
                                         const EnvironmentMap& environment);

/// Reads the tree and looks into its code folder; changes nothing. `hosts` is what the nodes said
/// where they have to be asked; without it names stand for hosts. Throws ConfigError, and HostError
/// when a file cannot be read.
JobConfig read_job_config(const opt_ml::Layout& layout, EnvironmentMap environment,
                          const std::vector<std::string>& hosts = {});

}  // namespace entrypoint
