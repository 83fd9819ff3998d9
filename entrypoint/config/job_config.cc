// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/job_config.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "entrypoint/config/aws_profile.h"
#include "entrypoint/config/job_distribution.h"
#include "entrypoint/config/s3_location.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "opt_ml_layout/tensorboard_config.h"
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
  const Value* value = job.hyperparameters.reserved.find(name);
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
  const Value* value = job.hyperparameters.user.find("mp_parameters");
  const Value found =
      value != nullptr
          ? *value
          : opt_ml::decode_hyperparameter(value_or(job.environment, "SM_HP_MP_PARAMETERS"));
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
  job.master_port = "7777";
  if (!job.hosts_by_cluster) return;
  LaunchOptions& options = job.options;
  if (job.cluster->cluster == Cluster::kTorch) {
    job.master_port = value_or(job.environment, "PET_MASTER_PORT", job.master_port);
  }
  if (job.shares_hosts()) {
    job.master_port = std::to_string(smp::cluster::derived_port(job.environment, 0).value());
    if (options.ssh_port == 0) {
      options.ssh_port = smp::cluster::derived_port(job.environment, 1).value();
    }
  }
  // Slurm (KillWait), Kubernetes and AWS Batch kill 30 s after their SIGTERM unless told otherwise.
  constexpr std::chrono::seconds kBeforeTheKill{25};
  if (value_or(job.environment, "SM_LAUNCH_STOP_SECONDS").empty()) {
    options.stop_after = kBeforeTheKill;
  }
}

std::vector<std::string> standing_for_hosts(const ClusterJob& cluster) {
  std::vector<std::string> hosts = {cluster.main_host.empty() ? "main-node" : cluster.main_host};
  for (int i = 1; i < cluster.host_count; ++i) hosts.push_back(fmt::format("node-{}", i));
  return hosts;
}

/// A tree that names its hosts is only checked against the cluster.
void read_hosts(const opt_ml::Layout& layout, const EnvironmentMap& environment,
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

bool escapes(const fs::path& code, const fs::path& file) {
  std::error_code error;
  const fs::path inside = fs::canonical(file, error).lexically_relative(fs::canonical(code, error));
  return error || inside.empty() || *inside.begin() == "..";
}

/// Without a setup.py only the code folder is on Python's path.
std::string module_in_package(const fs::path& code, const fs::path& file, bool is_installed) {
  const auto is_package = [&code](const fs::path& folder) {
    std::error_code ignored;
    return !folder.empty() && fs::exists(code / folder / "__init__.py", ignored);
  };
  fs::path folder = file.parent_path();
  if (!is_package(folder) || file.extension() != ".py") return {};
  std::string name = file.stem().string();
  for (; !folder.empty() && (!is_installed || is_package(folder)); folder = folder.parent_path()) {
    name = folder.filename().string() + "." + name;
  }
  return name;
}

std::string nested_requirements(const fs::path& code, const fs::path& entry_point) {
  const fs::path file = entry_point.parent_path() / "requirements.txt";
  std::error_code ignored;
  return file.has_parent_path() && fs::exists(code / file, ignored) ? file.string() : std::string();
}

}  // namespace

CodeFolder look_into_code(const opt_ml::Layout& layout, const std::string& entry_point,
                          const EnvironmentMap& environment) {
  CodeFolder result;
  std::error_code error;
  for (fs::directory_iterator entry(layout.code(), error), end; !error && entry != end;
       entry.increment(error)) {
    result.entries.push_back(entry->path().filename().string());
  }
  std::ranges::sort(result.entries);
  if (entry_point.empty()) return result;
  const std::string module = module_of_entry_point(entry_point);
  std::string path = module.empty() ? entry_point : module;
  if (!module.empty()) std::ranges::replace(path, '.', '/');
  result.nested_requirements = nested_requirements(layout.code(), path);
  if (!module.empty()) {
    result.entry_point_exists = fs::is_regular_file(layout.code() / (path + ".py"), error) ||
                                fs::is_regular_file(layout.code() / path / "__main__.py", error);
    return result;
  }
  result.program = find_program_file(layout.code(), entry_point, value_or(environment, "PATH"));
  const fs::path file = layout.code() / entry_point;
  if (entry_point.starts_with('/')) return result;
  result.entry_point_exists = fs::is_regular_file(file, error);
  result.entry_point_escapes = result.entry_point_exists && escapes(layout.code(), file);
  result.entry_point_in_package = true;
  for (fs::path parent = fs::path(entry_point).parent_path(); parent.has_relative_path();
       parent = parent.parent_path()) {
    result.entry_point_in_package &= fs::exists(layout.code() / parent / "__init__.py", error);
  }
  result.entry_point_module =
      module_in_package(layout.code(), entry_point, /*is_installed=*/result.has("setup.py"));
  return result;
}

std::string module_of_entry_point(const std::string& entry_point) {
  constexpr std::string_view kSwitch = "-m ";
  return entry_point.starts_with(kSwitch) ? entry_point.substr(kSwitch.size()) : "";
}

bool CodeFolder::has(std::string_view name) const {
  return std::ranges::find(entries, name) != entries.end();
}

bool JobConfig::names_code_folder() const {
  std::string named = path_of_file_url(module_dir).value_or(module_dir);
  while (named.size() > 1 && named.ends_with('/')) named.pop_back();
  // Local mode names the default place, wherever the tree is.
  return named == layout.code() || named == opt_ml::Layout().code();
}

std::string JobConfig::cluster_text() const {
  if (!cluster) return "";
  if (hosts_by_cluster) return fmt::format("{} ({})", cluster->title(), cluster->reason);
  return fmt::format("{}, whose hosts {} names", cluster->title(),
                     layout.resource_config().string());
}

bool JobConfig::is_model_parallel() const {
  if (const auto* members = mp_parameters.object()) return !members->empty();
  return mp_parameters.text() != nullptr;
}

opt_ml::Layout find_layout(const EnvironmentMap& environment) {
  // The user's process has another working directory, so a relative base would mislead it.
  return opt_ml::Layout(
      fs::absolute(value_or(environment, "SAGEMAKER_BASE_DIR", opt_ml::Layout::kDefaultBase)));
}

JobConfig make_job_config(const opt_ml::Layout& layout, JobFiles files,
                          EnvironmentMap environment) {
  JobConfig job;
  job.layout = layout;
  job.resources = std::move(files.resources);
  job.cluster = std::move(files.cluster);
  job.hosts_by_cluster = files.hosts_by_cluster;
  job.channels = std::move(files.channels);
  job.hyperparameters = std::move(files.hyperparameters);
  job.environment = std::move(environment);
  job.options = read_options(job.environment);
  job.warnings = describe_unknown_options(job.environment);
  if (!files.mounted_key.empty()) job.options.ssh_key = files.mounted_key;
  follow_cluster(job);

  job.entry_point = relative_to_code(first_of(value_or(job.environment, "SAGEMAKER_PROGRAM"),
                                              reserved_text(job, "sagemaker_program")),
                                     layout);
  job.module_dir = first_of(first_of(reserved_text(job, "sagemaker_submit_directory"),
                                     value_or(job.environment, "SAGEMAKER_SUBMIT_DIRECTORY")),
                            layout.code().string());
  job.tensorboard_folder = std::move(files.tensorboard_folder);
  job.job_name = reserved_text(job, "sagemaker_job_name");
  if (const auto name = job.environment.find("TRAINING_JOB_NAME"); name != job.environment.end()) {
    job.training_job_name = name->second;
  }
  job.region = first_of(reserved_text(job, "sagemaker_region"),
                        value_or(job.environment, "AWS_DEFAULT_REGION", files.profile_region));
  if (const std::string module = value_or(job.environment, "SAGEMAKER_TRAINING_MODULE");
      !module.empty()) {
    job.framework_module = module == kHandOverModule ? kPyTorchModule : module;
  }
  job.log_level = parse_log_level(
      first_of(value_or(job.environment, "SM_LOG_LEVEL"),
               first_of(reserved_text(job, "sagemaker_container_log_level"),
                        value_or(job.environment, "SAGEMAKER_CONTAINER_LOG_LEVEL"))),
      job.warnings);
  job.mp_parameters = find_mp_parameters(job);
  resolve_distribution(job);
  return job;
}

std::optional<ClusterJob> cluster_to_ask(const opt_ml::Layout& layout,
                                         const EnvironmentMap& environment) {
  std::error_code ignored;
  if (fs::exists(layout.resource_config(), ignored)) return std::nullopt;
  if (!read_options(environment).cluster) return std::nullopt;
  auto cluster = find_cluster(environment);
  return cluster && cluster->hosts.empty() ? std::move(cluster) : std::nullopt;
}

JobConfig read_job_config(const opt_ml::Layout& layout, EnvironmentMap environment,
                          const std::vector<std::string>& hosts) {
  JobFiles files;
  read_hosts(layout, environment, hosts, files);
  files.channels = opt_ml::read_data_channels(layout);
  files.hyperparameters = opt_ml::read_hyperparameters(layout, files.channels);
  files.tensorboard_folder = opt_ml::read_tensorboard_folder(layout);
  files.profile_region = value_or(read_profile(environment), "region");
  JobConfig job = make_job_config(layout, std::move(files), std::move(environment));
  job.code = look_into_code(layout, job.entry_point, job.environment);
  std::error_code ignored;
  job.intermediate_output_exists = fs::exists(layout.output_intermediate(), ignored);
  return job;
}

}  // namespace entrypoint
