// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/job_config.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/config/aws_location.h"
#include "entrypoint/config/aws_profile.h"
#include "entrypoint/config/job_distribution.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/outputs.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/cluster/launch_ranks.h"
#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"
#include "smp_runtime/core/log.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;
using opt_ml::Value;

/// A reserved hyperparameter as text; empty when absent, null or empty.
std::string reserved_text(const JobConfig& job, std::string_view name) {
  const Value* value = job.files.hyperparameters.reserved.find(name);
  return value == nullptr ? "" : opt_ml::environment_text(*value);
}

std::string first_of(std::string first, std::string second) {
  return first.empty() ? std::move(second) : std::move(first);
}

/// AWS's own example names the script by its absolute path below the code folder.
std::string relative_to_code(std::string entry_point, const opt_ml::Layout& layout) {
  const std::string prefix = layout.code().string() + "/";
  return entry_point.starts_with(prefix) ? entry_point.substr(prefix.size()) : entry_point;
}

int parse_log_level(const std::string& text, std::vector<std::string>& warnings) {
  constexpr auto kDefault = smp::log::Level::kInfo;
  const auto level = text.empty() ? kDefault : smp::log::parse_level(text);
  if (!level) {
    warnings.push_back(fmt::format(
        "log level \"{}\" is neither a number nor DEBUG, INFO, WARNING or ERROR; INFO is used",
        text));
  }
  return static_cast<int>(level.value_or(kDefault));
}

/// The hyperparameter, else the variable that image tests set by hand; null when there is neither.
Value find_mp_parameters(const JobConfig& job) {
  const Value* value = job.files.hyperparameters.user.find("mp_parameters");
  const Value found =
      value != nullptr
          ? *value
          : opt_ml::decode_hyperparameter(smp::value_or(job.environment, "SM_HP_MP_PARAMETERS"));
  if (found.is_null() || (found.text() != nullptr && found.text()->empty())) return {};
  if (found.object() == nullptr && found.text() == nullptr) {
    throw smp::ConfigError(
        "hyperparameter \"mp_parameters\" is {}, expected an object such as {{\"partitions\": 2}}",
        found.kind_name());
  }
  return found;
}

/// Sets the ports, where machines are shared, and the time for a stop, which differ between the
/// service and other clusters.
void follow_cluster(JobConfig& job) {
  job.hosts.master_port = "7777";
  if (!job.files.hosts_by_cluster) return;
  LaunchOptions& options = job.options;
  if (job.files.cluster->cluster == Cluster::kTorch) {
    job.hosts.master_port =
        smp::value_or(job.environment, "PET_MASTER_PORT", job.hosts.master_port);
  }
  if (job.shares_hosts()) {
    job.hosts.master_port = std::to_string(smp::cluster::derived_port(job.environment, 0).value());
    if (options.ssh_port == 0) {
      options.ssh_port = smp::cluster::derived_port(job.environment, 1).value();
    }
  }
  // Slurm (KillWait), Kubernetes and AWS Batch kill 30 s after their SIGTERM unless told otherwise.
  constexpr std::chrono::seconds kBeforeTheKill{25};
  if (smp::value_or(job.environment, "SM_LAUNCH_STOP_SECONDS").empty()) {
    options.stop_after = kBeforeTheKill;
  }
}

std::vector<std::string> standing_for_hosts(const ClusterJob& cluster) {
  std::vector<std::string> hosts = {cluster.main_host.empty() ? "main-node" : cluster.main_host};
  for (int i = 1; i < cluster.host_count; ++i) hosts.push_back(fmt::format("node-{}", i));
  return hosts;
}

/// A tree that names its hosts is only checked against the cluster.
void read_hosts(const opt_ml::Layout& layout, const smp::Variables& environment,
                const std::vector<std::string>& hosts, JobFiles& files) {
  const LaunchOptions options = read_options(environment);
  const fs::path file = layout.resource_config();
  std::error_code ignored;
  if (fs::exists(file, ignored)) {
    files.resources = opt_ml::read_resource_config(layout);
    try {
      if (options.cluster) files.cluster = find_cluster(environment);
    } catch (const smp::ConfigError&) {
      return;  // what is left of a cluster's variables says nothing about this job
    }
    if (files.cluster) check_agreement(*files.cluster, files.resources, file);
    return;
  }
  if (options.cluster) files.cluster = find_cluster(environment);
  if (!files.cluster) {
    files.resources = opt_ml::read_resource_config(layout);  // says that there is none
    return;
  }
  if (files.cluster->hosts.empty()) {
    files.cluster->hosts = hosts.empty() ? standing_for_hosts(*files.cluster) : hosts;
  }
  files.resources = make_resources(*files.cluster, smp::host_name());
  files.hosts_by_cluster = true;
  if (files.cluster->cluster == Cluster::kHostfile) {
    files.mounted_key = find_mounted_key(options.ssh_key, environment);
  }
}

}  // namespace

bool JobConfig::names_code_folder() const {
  std::string named = path_of_file_url(program.module_dir).value_or(program.module_dir);
  while (named.size() > 1 && named.ends_with('/')) named.pop_back();
  // Local mode names the default place, wherever the tree is.
  return named == layout.code() || named == opt_ml::Layout().code();
}

std::string JobConfig::cluster_text() const {
  if (!files.cluster) return "";
  const std::string title = files.cluster->title();
  if (files.hosts_by_cluster) return fmt::format("{} ({})", title, files.cluster->reason);
  return fmt::format("{}, whose hosts {} names", title, layout.resource_config().string());
}

bool JobConfig::is_model_parallel() const {
  if (const auto* members = program.mp_parameters.object()) return !members->empty();
  return program.mp_parameters.text() != nullptr;
}

opt_ml::Layout find_layout(const smp::Variables& environment) {
  // The user's process has another working directory, so a relative base would mislead it.
  return opt_ml::Layout(
      fs::absolute(smp::value_or(environment, "SAGEMAKER_BASE_DIR", opt_ml::Layout::kDefaultBase)));
}

JobConfig make_job_config(const opt_ml::Layout& layout, JobFiles files,
                          smp::Variables environment) {
  JobConfig job;
  job.layout = layout;
  job.files = std::move(files);
  job.environment = std::move(environment);
  job.options = read_options(job.environment);
  job.warnings = describe_unknown_options(job.environment);
  if (!job.files.mounted_key.empty()) job.options.ssh_key = job.files.mounted_key;
  follow_cluster(job);

  job.program.entry_point =
      relative_to_code(first_of(smp::value_or(job.environment, "SAGEMAKER_PROGRAM"),
                                reserved_text(job, "sagemaker_program")),
                       layout);
  job.program.module_dir =
      first_of(first_of(reserved_text(job, "sagemaker_submit_directory"),
                        smp::value_or(job.environment, "SAGEMAKER_SUBMIT_DIRECTORY")),
               layout.code().string());
  job.job_name = reserved_text(job, "sagemaker_job_name");
  if (const auto name = job.environment.find("TRAINING_JOB_NAME"); name != job.environment.end()) {
    job.training_job_name = name->second;
  }
  job.region =
      first_of(reserved_text(job, "sagemaker_region"),
               smp::value_or(job.environment, "AWS_DEFAULT_REGION", job.files.profile_region));
  if (const std::string module = smp::value_or(job.environment, "SAGEMAKER_TRAINING_MODULE");
      !module.empty()) {
    job.program.framework_module = module == kHandOverModule ? kPyTorchModule : module;
  }
  job.log_level = parse_log_level(
      first_of(smp::value_or(job.environment, "SM_LOG_LEVEL"),
               first_of(reserved_text(job, "sagemaker_container_log_level"),
                        smp::value_or(job.environment, "SAGEMAKER_CONTAINER_LOG_LEVEL"))),
      job.warnings);
  job.program.mp_parameters = find_mp_parameters(job);
  resolve_distribution(job);
  return job;
}

namespace {

void read_secret(const smp::Variables& environment, JobFiles& files) {
  files.secret = smp::JobSecret::given(environment);
  const fs::path key = files.mounted_key.empty()
                           ? fs::path(smp::value_or(environment, "SM_LAUNCH_SSH_KEY"))
                           : files.mounted_key;
  if (files.secret || smp::read_text(key).empty()) return;  // of the latter ssh will speak
  files.secret = smp::JobSecret::given({{std::string(smp::kSecretFileVariable), key.string()}});
  files.secret_key = key;
}

}  // namespace

JobConfig read_job_config(const opt_ml::Layout& layout, smp::Variables environment,
                          const std::vector<std::string>& hosts) {
  JobFiles files;
  read_hosts(layout, environment, hosts, files);
  files.channels = opt_ml::read_data_channels(layout);
  files.hyperparameters = opt_ml::read_hyperparameters(layout, files.channels);
  files.tensorboard_folder = opt_ml::read_tensorboard_folder(layout);
  files.checkpoints = opt_ml::read_checkpoint_place(layout);
  std::error_code ignored;
  files.intermediate_output_exists = fs::exists(layout.output_intermediate(), ignored);
  read_secret(environment, files);
  files.profile_region = smp::value_or(read_profile(environment), "region");
  JobConfig job = make_job_config(layout, std::move(files), std::move(environment));
  job.program.code = look_into_code(layout, job.program.entry_point, job.environment);
  return job;
}

}  // namespace entrypoint
