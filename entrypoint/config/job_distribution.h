// SPDX-License-Identifier: Apache-2.0
// The hosts that work together, the one that leads them, and the runners that they ask for.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace entrypoint {

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
};

/// The hosts of a job, and those that its distribution is for.
struct JobHosts {
  std::vector<std::string> all;           ///< file order, or sorted as the option says
  std::vector<std::string> groups;        ///< instance groups that take part in the distribution
  std::vector<std::string> distribution;  ///< hosts of these groups in rank order; may be empty
  bool current_group_takes_part = false;
  std::string master;       ///< first distribution host, else first host
  std::string master_port;  ///< of the rendezvous
};

struct JobConfig;

/// Fills `distribution`, `hosts` and `master` from what else `job` holds. Throws ConfigError for
/// counts and lists of another type, and for groups that do not exist.
void resolve_distribution(JobConfig& job);

}  // namespace entrypoint
