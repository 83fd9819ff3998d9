// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/job_distribution.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/config/job_config.h"
#include "opt_ml_layout/python_text.h"
#include "smp_runtime/core/error.h"

namespace entrypoint {
namespace {

using opt_ml::Value;
using Texts = std::vector<std::string>;

class FrameworkParameters {
 public:
  explicit FrameworkParameters(JobConfig& job) : job_(job) {}

  /// Text that is no switch counts as on, as any text does for Python, with a warning.
  bool flag(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr) return false;
    const auto on = opt_ml::parse_switch(*value);
    if (!on) {
      job_.warnings.push_back(
          fmt::format("hyperparameter \"{}\" is {}, expected true or false; it counts as true",
                      name, opt_ml::python_repr(*value)));
    }
    return on.value_or(true);
  }

  /// Absent, null, 0 and empty text mean "not given".
  std::optional<int> count(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (value->text() != nullptr && value->text()->empty()) return std::nullopt;
    const auto number = opt_ml::decode_hyperparameter(*value).integer();
    if (!number || *number < 0 || *number > std::numeric_limits<int>::max()) {
      throw smp::ConfigError("hyperparameter \"{}\" is {}, expected a whole number above 0", name,
                             opt_ml::python_repr(*value));
    }
    return *number == 0 ? std::nullopt : std::optional(static_cast<int>(*number));
  }

  std::string text(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr || value->is_null()) return "";
    if (value->text() == nullptr) {
      throw smp::ConfigError("hyperparameter \"{}\" is {}, expected text", name,
                             opt_ml::python_repr(*value));
    }
    return *value->text();
  }

  std::optional<Texts> texts(std::string_view name) {
    const Value* value = find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    const auto fail = [&] {
      throw smp::ConfigError("hyperparameter \"{}\" is {}, expected a list of group names", name,
                             opt_ml::python_repr(*value));
    };
    Texts result;
    if (value->list() == nullptr) fail();
    for (const Value& element : *value->list()) {
      if (element.text() == nullptr) fail();
      result.push_back(*element.text());
    }
    return result;
  }

 private:
  const Value* find(std::string_view name) const {
    return job_.files.hyperparameters.framework.find(name);
  }

  JobConfig& job_;
};

bool contains(const Texts& texts, const std::string& text) {
  return std::ranges::find(texts, text) != texts.end();
}

/// Sorts algo-10 after algo-9: the text before the last number, then that number, then all of it.
std::tuple<std::string, std::size_t, std::string, std::string> natural_key(
    const std::string& host) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto last = std::find_if(host.rbegin(), host.rend(), is_digit).base();
  const auto first =
      std::find_if_not(std::make_reverse_iterator(last), host.rend(), is_digit).base();
  std::string digits(first, last);
  digits.erase(0, std::min(digits.find_first_not_of('0'), digits.size()));
  return {std::string(host.begin(), first), digits.size(), digits, host};
}

void sort_naturally(Texts& hosts) { std::ranges::sort(hosts, {}, natural_key); }

Texts hosts_of_groups(const JobConfig& job, const Texts& groups) {
  if (job.files.resources.groups.empty()) return job.files.resources.hosts;
  Texts hosts;
  for (const opt_ml::InstanceGroup& group : job.files.resources.groups) {
    if (!contains(groups, group.name)) continue;
    for (const std::string& host : group.hosts) {
      if (!contains(job.files.resources.hosts, host)) {
        throw smp::ConfigError(
            "resourceconfig.json: host \"{}\" of group \"{}\" is not in hosts [\"{}\"]; correct "
            "the "
            "file",
            host, group.name, fmt::join(job.files.resources.hosts, "\", \""));
      }
      hosts.push_back(host);
    }
  }
  return hosts;
}

void check_groups_exist(const JobConfig& job, const Texts& groups) {
  Texts known;
  for (const opt_ml::InstanceGroup& group : job.files.resources.groups) known.push_back(group.name);
  for (const std::string& group : groups) {
    if (known.empty() || contains(known, group)) continue;
    throw smp::ConfigError(
        "hyperparameter \"sagemaker_distribution_instance_groups\" names group \"{}\", "
        "resourceconfig.json has [\"{}\"]; name one of these",
        group, fmt::join(known, "\", \""));
  }
}

/// Asks for the runner of the engine's kind of job, unless the job's hyperparameters ask for one:
/// the launcher of a hostfile runs MPI, the pods of torch run torchrun.
void follow_engine(const ClusterJob& cluster, Distribution& distribution) {
  const bool chosen = distribution.mpi || distribution.pytorch_ddp ||
                      distribution.torch_distributed || distribution.data_parallel;
  const bool mpi = cluster.cluster == Cluster::kHostfile;
  const bool torch = cluster.cluster == Cluster::kTorch;
  if (!chosen) {
    distribution.mpi = mpi;
    distribution.torch_distributed = torch;
  }
  if (mpi || torch) {
    if (!distribution.processes_per_host)
      distribution.processes_per_host = cluster.tasks_per_host();
  }
}

}  // namespace

void resolve_distribution(JobConfig& job) {
  FrameworkParameters parameters(job);
  Distribution& distribution = job.distribution;
  JobHosts& hosts = job.hosts;
  distribution.mpi = parameters.flag("sagemaker_mpi_enabled");
  distribution.pytorch_ddp = parameters.flag("sagemaker_pytorch_ddp_enabled");
  distribution.torch_distributed = parameters.flag("sagemaker_torch_distributed_enabled");
  distribution.data_parallel = parameters.flag("sagemaker_distributed_dataparallel_enabled");
  distribution.pytorch_xla = parameters.flag("sagemaker_pytorch_xla_multi_worker_enabled");
  const bool tensorflow = parameters.flag("sagemaker_parameter_server_enabled") ||
                          parameters.flag("sagemaker_multi_worker_mirrored_strategy_enabled");
  distribution.processes_per_host = parameters.count("sagemaker_mpi_num_of_processes_per_host");
  distribution.total_processes = parameters.count("sagemaker_mpi_num_processes");
  distribution.custom_mpi_options = parameters.text("sagemaker_mpi_custom_mpi_options");
  distribution.custom_smddp_options =
      parameters.text("sagemaker_distributed_dataparallel_custom_mpi_options");
  distribution.instance_type = parameters.text("sagemaker_instance_type");
  distribution.native_launcher = parameters.flag("sagemaker_toolkit_native_launcher_enabled");

  if (job.files.hosts_by_cluster) follow_engine(*job.files.cluster, distribution);
  const RunnerWish wish = job.options.runner;
  const bool any = wish == RunnerWish::kAuto
                       ? distribution.mpi || distribution.pytorch_ddp ||
                             distribution.torch_distributed || distribution.data_parallel ||
                             distribution.pytorch_xla || tensorflow
                       : wish != RunnerWish::kProcess;
  const std::string& current_group = job.files.resources.current_group_name;
  if (const auto named = parameters.texts("sagemaker_distribution_instance_groups")) {
    hosts.groups = *named;
    check_groups_exist(job, *named);
  } else if (any) {
    hosts.groups = {current_group};
  }
  hosts.current_group_takes_part = contains(hosts.groups, current_group);
  hosts.distribution = hosts_of_groups(job, hosts.groups);
  if (hosts.current_group_takes_part && !job.launches_from_outside() &&
      !contains(hosts.distribution, job.files.resources.current_host)) {
    throw smp::ConfigError(
        "resourceconfig.json: current_host \"{}\" is not among the hosts [\"{}\"] of its group "
        "\"{}\"; correct the file",
        job.files.resources.current_host, fmt::join(hosts.distribution, "\", \""), current_group);
  }
  hosts.all = job.files.resources.hosts;
  if (job.options.sort_hosts) {
    sort_naturally(hosts.distribution);
    sort_naturally(hosts.all);
  }
  hosts.master = hosts.distribution.empty() ? hosts.all.front() : hosts.distribution.front();
}

}  // namespace entrypoint
