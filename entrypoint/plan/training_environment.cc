// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/training_environment.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace entrypoint {
namespace {

using opt_ml::Value;

Value text_or_null(const std::optional<std::string>& text) { return text ? Value(*text) : Value(); }

Value group_names(const JobConfig& job) {
  std::vector<std::string> names;
  for (const opt_ml::InstanceGroup& group : job.resources.groups) names.push_back(group.name);
  return Value::list_of(names);
}

/// Group name to the whole object of the file.
Value groups_by_name(const JobConfig& job) {
  Value result = Value::Object{};
  const Value* groups = job.resources.document.find("instance_groups");
  if (groups == nullptr || groups->list() == nullptr) return result;
  for (const Value& group : *groups->list()) {
    result.set(*group.find("instance_group_name")->text(), group);
  }
  return result;
}

Value channel_folders(const JobConfig& job) {
  Value result = Value::Object{};
  for (const opt_ml::Channel& channel : job.channels.channels) {
    result.set(channel.name, channel.folder.string());
  }
  return result;
}

std::string module_name(const std::string& entry_point) {
  if (entry_point.empty()) return "None";
  if (std::string module = module_of_entry_point(entry_point); !module.empty()) return module;
  return entry_point.ends_with(".py") ? entry_point.substr(0, entry_point.size() - 3) : entry_point;
}

}  // namespace

Value make_training_environment(const JobConfig& job, const HostFacts& facts) {
  const opt_ml::Layout& layout = job.layout;
  const opt_ml::ResourceConfig& resources = job.resources;
  Value result = Value::Object{};
  const auto set = [&](const char* key, Value value) { result.set(key, std::move(value)); };

  set("additional_framework_parameters", job.hyperparameters.framework);
  set("channel_input_dirs", channel_folders(job));
  set("current_host", resources.current_host);
  set("current_instance_group", resources.current_group_name);
  set("current_instance_group_hosts",
      Value::list_of(resources.group_hosts(resources.current_group_name)));
  set("current_instance_type", resources.current_instance_type);
  set("distribution_hosts", Value::list_of(job.distribution.hosts));
  set("distribution_instance_groups", Value::list_of(job.distribution.groups));
  set("framework_module", text_or_null(job.framework_module));
  set("hosts", Value::list_of(resources.hosts));
  set("hyperparameters", job.hyperparameters.user);
  set("input_config_dir", layout.input_config().string());
  set("input_data_config", job.channels.document);
  set("input_dir", layout.input().string());
  set("instance_groups", group_names(job));
  set("instance_groups_dict", groups_by_name(job));
  set("is_hetero", resources.groups.size() > 1);
  set("is_master", job.is_master());
  set("is_modelparallel_enabled", job.is_model_parallel() ? Value(true) : Value());
  set("is_smddpmprun_installed", facts.has_smddpmprun);
  set("is_smddprun_installed", facts.has_smddprun);
  set("job_name", text_or_null(job.training_job_name));
  set("log_level", job.log_level);
  set("master_hostname", job.master);
  set("model_dir", layout.model().string());
  set("module_dir", job.module_dir);
  set("module_name", module_name(job.entry_point));
  set("network_interface_name", resources.network_interface_name);
  set("num_cpus", facts.num_cpus);
  set("num_gpus", facts.num_gpus);
  set("num_neurons", facts.num_neurons);
  set("output_data_dir", layout.output_data().string());
  set("output_dir", layout.output().string());
  set("output_intermediate_dir", layout.output_intermediate().string());
  set("resource_config", resources.document);
  set("topology", resources.topology.is_null() ? Value(Value::List{}) : resources.topology);
  set("user_entry_point", job.entry_point.empty() ? Value() : Value(job.entry_point));
  return result;
}

}  // namespace entrypoint
