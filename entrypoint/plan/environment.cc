// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/environment.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "opt_ml_layout/python_text.h"

namespace entrypoint {
namespace {

using opt_ml::Value;

constexpr std::size_t kLongestStringBytes = 131072;  // "NAME=value" and its NUL; Linux' limit
// Half of what Linux lets arguments and environment have together, for a stack of 8 MiB.
constexpr std::size_t kAllStringsBytes = 1024 * 1024;
constexpr std::size_t kWorthAFile = 1024;  // shorter ones would not help

std::size_t bytes_of(const Variable& variable) {
  return variable.name.size() + variable.value.size() + 2;
}

constexpr std::array<std::string_view, 14> kHostVariables = {
    "SM_CURRENT_HOST", "SM_CURRENT_INSTANCE_TYPE", "SM_CURRENT_INSTANCE_GROUP",
    "SM_CURRENT_INSTANCE_GROUP_HOSTS", "SM_NUM_CPUS", "SM_NUM_GPUS", "SM_NUM_NEURONS",
    "SM_RESOURCE_CONFIG", "SM_TRAINING_ENV", "CURRENT_HOST", "SM_CURRENT_HOST_RANK",
    "OMP_NUM_THREADS",
    // Names of interfaces may differ between hosts.
    "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"};

bool is_identifier(std::string_view name) {
  return std::ranges::all_of(name, [](char c) {
    return std::isupper(static_cast<unsigned char>(c)) ||
           std::isdigit(static_cast<unsigned char>(c)) || c == '_';
  });
}

/// Every character outside [A-Z0-9_] becomes one underscore.
std::string as_identifier(std::string_view name) {
  std::string result;
  for (const char c : name) {
    const bool continues_character = (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
    if (is_identifier({&c, 1})) {
      result += c;
    } else if (!continues_character) {
      result += '_';
    }
  }
  return result;
}

Value text_or_null(const std::optional<std::string>& text) { return text ? Value(*text) : Value(); }

Value group_names(const JobConfig& job) {
  std::vector<std::string> names;
  for (const opt_ml::InstanceGroup& group : job.files.resources.groups) names.push_back(group.name);
  return Value::list_of(names);
}

/// Group name to the whole object of the file.
Value groups_by_name(const JobConfig& job) {
  Value result = Value::Object{};
  const Value* groups = job.files.resources.document.find("instance_groups");
  if (groups == nullptr || groups->list() == nullptr) return result;
  for (const Value& group : *groups->list()) {
    result.set(*group.find("instance_group_name")->text(), group);
  }
  return result;
}

Value channel_folders(const JobConfig& job) {
  Value result = Value::Object{};
  for (const opt_ml::Channel& channel : job.files.channels.channels) {
    result.set(channel.name, channel.folder.string());
  }
  return result;
}

std::string module_name(const std::string& entry_point) {
  if (entry_point.empty()) return "None";
  if (std::string module = module_of_entry_point(entry_point); !module.empty()) return module;
  return entry_point.ends_with(".py") ? entry_point.substr(0, entry_point.size() - 3) : entry_point;
}

/// SM_TRAINING_ENV: everything about the job and this host as one object. The keys are exactly
/// those of the reference launcher, in alphabetical order.
Value make_training_environment(const JobConfig& job, const HostFacts& facts) {
  const opt_ml::Layout& layout = job.layout;
  const opt_ml::ResourceConfig& resources = job.files.resources;
  Value result = Value::Object{};
  const auto set = [&](const char* key, Value value) { result.set(key, std::move(value)); };

  set("additional_framework_parameters", job.files.hyperparameters.framework);
  set("channel_input_dirs", channel_folders(job));
  set("current_host", resources.current_host);
  set("current_instance_group", resources.current_group_name);
  set("current_instance_group_hosts",
      Value::list_of(resources.group_hosts(resources.current_group_name)));
  set("current_instance_type", resources.current_instance_type);
  set("distribution_hosts", Value::list_of(job.hosts.distribution));
  set("distribution_instance_groups", Value::list_of(job.hosts.groups));
  set("framework_module", text_or_null(job.program.framework_module));
  set("hosts", Value::list_of(resources.hosts));
  set("hyperparameters", job.files.hyperparameters.user);
  set("input_config_dir", layout.input_config().string());
  set("input_data_config", job.files.channels.document);
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
  set("master_hostname", job.hosts.master);
  set("model_dir", layout.model().string());
  set("module_dir", job.program.module_dir);
  set("module_name", module_name(job.program.entry_point));
  set("network_interface_name", resources.network_interface_name);
  set("num_cpus", facts.num_cpus);
  set("num_gpus", facts.num_gpus);
  set("num_neurons", facts.num_neurons);
  set("output_data_dir", layout.output_data().string());
  set("output_dir", layout.output().string());
  set("output_intermediate_dir", layout.output_intermediate().string());
  set("resource_config", resources.document);
  set("topology", resources.topology.is_null() ? Value(Value::List{}) : resources.topology);
  set("user_entry_point",
      job.program.entry_point.empty() ? Value() : Value(job.program.entry_point));
  return result;
}

class EnvironmentMaker {
 public:
  explicit EnvironmentMaker(const EnvironmentInput& input) : input_(input), job_(input.job) {}

  JobEnvironment make() {
    result_.training_environment = make_training_environment(job_, input_.facts);
    add_table();
    add_job_variables();
    add_rendezvous();
    add_newer_names();
    add_identifiers();
    for (Variable* longest = longest_value(); longest != nullptr; longest = longest_value()) {
      move_to_file(*longest);
    }
    return std::move(result_);
  }

 private:
  /// A member of SM_TRAINING_ENV under its variable's name.
  void add(std::string name, std::string_view key) {
    const Value* value = result_.training_environment.find(key);
    add_text(std::move(name), opt_ml::environment_text(*value));
  }

  void add_text(std::string name, std::string value) {
    if (name.find_first_of(std::string_view("=\0", 2)) != std::string::npos ||
        value.find('\0') != std::string::npos) {
      result_.warnings.push_back(
          fmt::format("variable {} is left out: a name with '=' or a NUL cannot be exported",
                      name.substr(0, name.find('\0'))));
      return;
    }
    set_variable(result_.table, std::move(name), std::move(value));
  }

  void add_table() {
    const opt_ml::Layout& layout = job_.layout;
    add("SM_HOSTS", "hosts");
    add("SM_NETWORK_INTERFACE_NAME", "network_interface_name");
    add("SM_HPS", "hyperparameters");
    add("SM_USER_ENTRY_POINT", "user_entry_point");
    add("SM_FRAMEWORK_PARAMS", "additional_framework_parameters");
    add("SM_RESOURCE_CONFIG", "resource_config");
    add("SM_INPUT_DATA_CONFIG", "input_data_config");
    add("SM_OUTPUT_DATA_DIR", "output_data_dir");
    add_text("SM_CHANNELS", opt_ml::to_json(Value::list_of(job_.files.channels.sorted_names())));
    add("SM_CURRENT_HOST", "current_host");
    add("SM_CURRENT_INSTANCE_TYPE", "current_instance_type");
    add("SM_CURRENT_INSTANCE_GROUP", "current_instance_group");
    add("SM_CURRENT_INSTANCE_GROUP_HOSTS", "current_instance_group_hosts");
    add("SM_INSTANCE_GROUPS", "instance_groups");
    add("SM_INSTANCE_GROUPS_DICT", "instance_groups_dict");
    add("SM_DISTRIBUTION_INSTANCE_GROUPS", "distribution_instance_groups");
    add("SM_IS_HETERO", "is_hetero");
    add("SM_MODULE_NAME", "module_name");
    add("SM_LOG_LEVEL", "log_level");
    add("SM_FRAMEWORK_MODULE", "framework_module");
    add("SM_INPUT_DIR", "input_dir");
    add("SM_INPUT_CONFIG_DIR", "input_config_dir");
    add("SM_OUTPUT_DIR", "output_dir");
    add("SM_NUM_CPUS", "num_cpus");
    add("SM_NUM_GPUS", "num_gpus");
    add("SM_NUM_NEURONS", "num_neurons");
    add("SM_MODEL_DIR", "model_dir");
    add("SM_MODULE_DIR", "module_dir");
    add_text("SM_TRAINING_ENV", opt_ml::to_json(result_.training_environment));
    add_text("SM_USER_ARGS", opt_ml::to_json(Value::list_of(input_.user_arguments)));
    add("SM_OUTPUT_INTERMEDIATE_DIR", "output_intermediate_dir");
    if (const auto* topology = result_.training_environment.find("topology")->list();
        topology != nullptr && !topology->empty()) {
      add("SM_TOPOLOGY", "topology");
    }
    for (const opt_ml::Channel& channel : job_.files.channels.channels) {
      add_text("SM_CHANNEL_" + opt_ml::python_upper(channel.name), channel.folder.string());
    }
    for (const Value::Member& member : *job_.files.hyperparameters.user.object()) {
      add_text(hyperparameter_variable(member.key), opt_ml::environment_text(member.value));
    }
    add_text("PYTHONPATH", python_path(layout));
  }

  [[nodiscard]] std::string python_path(const opt_ml::Layout& layout) const {
    std::string path = layout.code().string();
    for (const std::string& more : {input_.facts.launcher.parent_path().string(),
                                    smp::value_or(job_.environment, "PYTHONPATH")}) {
      if (!more.empty()) path += ":" + more;
    }
    return path;
  }

  void add_other(std::string name, std::string value) {
    set_variable(result_.others, std::move(name), std::move(value));
  }

  /// The user's own value wins; it is inherited, so nothing is added.
  void add_unless_set(const std::string& name, std::string_view value) {
    const auto own = job_.environment.find(name);
    if (own == job_.environment.end()) {
      if (!value.empty()) add_other(name, std::string(value));
      return;
    }
    add_other(name, own->second);
    if (own->second != value) {
      result_.notes.push_back(fmt::format(
          "{}={} is kept as the job's environment sets it; ours is {}", name, own->second, value));
    }
  }

  void add_job_variables() {
    add_other("SAGEMAKER_JOB_NAME", job_.job_name);
    add_unless_set("SM_CHECKPOINT_DIR", job_.files.checkpoints.folder.string());
    if (job_.options.restarts > 0) add_other("SM_RESTART_COUNT", "0");
    add_other("CURRENT_HOST", job_.current_host());
    add_other("SAGEMAKER_REGION", job_.region);
    if (job_.options.report) {
      add_unless_set("SMP_RECORDS", (job_.layout.output_data() / "records").string());
    }
    if (input_.facts.has_tensorboard) add_unless_set("SMP_TENSORBOARD", tensorboard_folder());
  }

  [[nodiscard]] std::string tensorboard_folder() const {
    const auto& wanted = job_.files.tensorboard_folder;
    return (wanted.empty() ? job_.layout.output_data() / "tensorboard" : wanted).string();
  }

  void add_rendezvous() {
    add_unless_set("MASTER_ADDR", input_.network.master_address);
    add_unless_set("MASTER_PORT", job_.hosts.master_port);
    if (!job_.files.secret_key.empty()) {
      add_other(std::string(smp::kSecretFileVariable), job_.files.secret_key.string());
    }
    add_unless_set("NCCL_SOCKET_IFNAME", input_.network.interface_name);
    // EFA is libfabric's, yet a user who reads "IB disabled" beside it is misled.
    add_unless_set("NCCL_IB_DISABLE", input_.network.efa.enabled ? "" : "1");
    add_unless_set("NCCL_DEBUG", "WARN");
    add_unless_set("GLOO_SOCKET_IFNAME", input_.network.gloo_interface);
    if (!input_.facts.torch_version.empty()) {
      add_other("SM_DLC_TORCH_VERSION", input_.facts.torch_version);
    }
  }

  /// Variables that scripts written for the third SDK read.
  void add_newer_names() {
    std::vector<std::string> sorted = job_.files.resources.hosts;
    std::ranges::sort(sorted);
    const auto rank = std::ranges::find(sorted, job_.current_host()) - sorted.begin();
    add_other("SM_INPUT_DATA_DIR", job_.layout.input_data().string());
    add_other("SM_OUTPUT_FAILURE", job_.layout.failure_marker().string());
    add_other("SM_MASTER_ADDR", *find_variable(result_.others, "MASTER_ADDR"));
    add_other("SM_MASTER_PORT", *find_variable(result_.others, "MASTER_PORT"));
    add_other("SM_HOST_COUNT", std::to_string(job_.files.resources.hosts.size()));
    add_other("SM_CURRENT_HOST_RANK", std::to_string(rank));
    add_other("SM_SOURCE_DIR", job_.layout.code().string());
    add_other("SM_ENTRY_SCRIPT", job_.program.entry_point);
  }

  /// `SM_HP_BATCH-SIZE` cannot be read by a shell: a second copy can.
  void add_identifiers() {
    for (const Variable& variable : std::vector(result_.table)) {
      const bool from_user =
          variable.name.starts_with("SM_HP_") || variable.name.starts_with("SM_CHANNEL_");
      if (!from_user || is_identifier(variable.name)) continue;
      std::string name = as_identifier(variable.name);
      const bool taken = find_variable(result_.table, name) != nullptr ||
                         find_variable(result_.others, name) != nullptr;
      if (!taken) add_other(std::move(name), variable.value);
    }
  }

  /// The longest variable, if it or all together exceed what Linux starts a program with.
  Variable* longest_value() {
    Variable* longest = nullptr;
    std::size_t all = 0;
    for (auto* variables : {&result_.table, &result_.others}) {
      for (Variable& variable : *variables) {
        all += bytes_of(variable);
        if (longest == nullptr || bytes_of(variable) > bytes_of(*longest)) longest = &variable;
      }
    }
    const bool fits = all <= kAllStringsBytes && bytes_of(*longest) <= kLongestStringBytes;
    return fits || bytes_of(*longest) < kWorthAFile ? nullptr : longest;
  }

  void move_to_file(Variable& variable) {
    std::string file_name = variable.name;
    std::ranges::replace(file_name, '/', '_');
    PlannedFile file{job_.layout.long_variable(file_name), std::move(variable.value)};
    result_.warnings.push_back(fmt::format(
        "{} has {} bytes, too many for an environment variable: {}_FILE names a file with it",
        variable.name, file.content.size(), variable.name));
    variable = {variable.name + "_FILE", file.path.string()};
    result_.files.push_back(std::move(file));
  }

  const EnvironmentInput& input_;
  const JobConfig& job_;
  JobEnvironment result_;
};

}  // namespace

JobEnvironment make_environment(const EnvironmentInput& input) {
  return EnvironmentMaker(input).make();
}

std::string hyperparameter_variable(std::string_view name) {
  return "SM_HP_" + opt_ml::python_upper(name);
}

bool is_host_variable(std::string_view name) {
  if (name.ends_with("_FILE")) name.remove_suffix(std::string_view("_FILE").size());
  return std::ranges::find(kHostVariables, name) != kHostVariables.end();
}

const std::string* find_variable(const std::vector<Variable>& variables, std::string_view name) {
  const auto variable = std::ranges::find(variables, name, &Variable::name);
  return variable == variables.end() ? nullptr : &variable->value;
}

void set_variable(std::vector<Variable>& variables, std::string name, std::string value) {
  const auto variable = std::ranges::find(variables, name, &Variable::name);
  if (variable == variables.end()) {
    variables.push_back({std::move(name), std::move(value)});
  } else {
    variable->value = std::move(value);
  }
}

}  // namespace entrypoint
