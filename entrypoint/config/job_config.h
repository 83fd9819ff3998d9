// SPDX-License-Identifier: Apache-2.0
// A job as one value: its tree and its environment, read once and checked.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "entrypoint/config/cluster_resources.h"
#include "entrypoint/config/code_folder.h"
#include "entrypoint/config/job_distribution.h"
#include "entrypoint/config/launch_options.h"
#include "opt_ml_layout/data_channels.h"
#include "opt_ml_layout/hyperparameters.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/paths.h"
#include "opt_ml_layout/resource_config.h"
#include "opt_ml_layout/value.h"
#include "smp_runtime/core/job_secret.h"
#include "smp_runtime/core/variables.h"

namespace entrypoint {

/// SAGEMAKER_TRAINING_MODULE of every PyTorch image, Hugging Face's included: what `train` does
/// itself.
inline constexpr std::string_view kPyTorchModule = "sagemaker_pytorch_container.training:main";
/// The module by which Amazon's launcher hands a job over to `train` (smdistributed/training.py),
/// which then does the work of the module that it stands for.
inline constexpr std::string_view kHandOverModule = "smdistributed.training:main";

/// The files of a tree, as read: what turns into a JobConfig without touching the disk again.
struct JobFiles {
  opt_ml::ResourceConfig resources;
  std::optional<ClusterJob> cluster;  ///< if an engine started the job
  bool hosts_by_cluster = false;      ///< `resources` are what its engine says
  std::filesystem::path mounted_key;  ///< of a launcher of MPI; empty elsewhere
  opt_ml::DataChannels channels;
  opt_ml::Hyperparameters hyperparameters;
  std::filesystem::path tensorboard_folder;  ///< by TensorBoardOutputConfig; or empty
  opt_ml::CheckpointPlace checkpoints;
  bool intermediate_output_exists = false;  ///< <base>/output/intermediate was there
  /// SMP_JOB_SECRET, or what its file holds; else the mounted key, which all hosts have, too.
  std::optional<smp::JobSecret> secret;
  std::filesystem::path secret_key;  ///< that key; empty: the environment has the secret, or none
  std::string profile_region;        ///< of the AWS profile in use; empty when it names none
};

/// The user's program, or the module of a framework that looks for it.
struct JobProgram {
  std::string entry_point;  ///< SM_USER_ENTRY_POINT; empty when none is set
  std::string module_dir;   ///< sagemaker_submit_directory, else <base>/code
  CodeFolder code;
  std::optional<std::string> framework_module;  ///< SAGEMAKER_TRAINING_MODULE
  opt_ml::Value mp_parameters;                  ///< object, or text `k=v,…`; null: none
};

struct JobConfig {
  opt_ml::Layout layout;
  JobFiles files;
  smp::Variables environment;  ///< this process's, as read
  LaunchOptions options;
  JobProgram program;
  Distribution distribution;
  JobHosts hosts;

  std::string job_name;                          ///< hyperparameter sagemaker_job_name
  std::optional<std::string> training_job_name;  ///< variable TRAINING_JOB_NAME
  std::string region;  ///< hyperparameter, else AWS_DEFAULT_REGION, else the AWS profile's
  int log_level = 20;
  std::vector<std::string> warnings;

  [[nodiscard]] const std::string& current_host() const { return files.resources.current_host; }
  [[nodiscard]] bool is_master() const {
    return cluster_serves_hosts() || current_host() == hosts.master;
  }
  /// No `train` runs on the other hosts but an sshd of the engine's, as on the workers of an
  /// MPIJob: this one starts the ranks of all.
  [[nodiscard]] bool cluster_serves_hosts() const {
    return files.hosts_by_cluster && files.cluster->cluster == Cluster::kHostfile;
  }
  /// "Slurm job 7, 2 nodes (SLURM_STEP_NODELIST)", or why something else says the hosts; empty
  /// without an engine.
  [[nodiscard]] std::string cluster_text() const;
  /// And this host has no ranks itself, as most launchers.
  [[nodiscard]] bool launches_from_outside() const {
    return files.hosts_by_cluster && !files.cluster->host_number;
  }
  /// The machine may run other jobs beside this one, in the same network: no port is ours alone.
  [[nodiscard]] bool shares_hosts() const {
    return files.hosts_by_cluster && files.cluster->cluster == Cluster::kSlurm;
  }
  /// The code is to be taken from its folder as it is, not fetched from elsewhere.
  [[nodiscard]] bool names_code_folder() const;
  /// mp_parameters is there and not empty.
  [[nodiscard]] bool is_model_parallel() const;
};

/// The tree that SAGEMAKER_BASE_DIR names, else /opt/ml; always an absolute path.
opt_ml::Layout find_layout(const smp::Variables& environment);

/// Pure, `code` aside. Throws ConfigError for values that make no job, naming the hyperparameter or
/// variable; settings that look like slips become warnings.
JobConfig make_job_config(const opt_ml::Layout& layout, JobFiles files, smp::Variables environment);

/// Reads the tree and looks into its code folder; changes nothing. `hosts` is what the nodes said
/// where they have to be asked; without it names stand for hosts. Throws ConfigError, and HostError
/// when a file cannot be read.
JobConfig read_job_config(const opt_ml::Layout& layout, smp::Variables environment,
                          const std::vector<std::string>& hosts = {});

}  // namespace entrypoint
