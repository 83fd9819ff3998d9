// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpirun_line.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/ranges.h>

#include "entrypoint/plan/arguments.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

constexpr std::array kCredentials = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                     "AWS_SESSION_TOKEN"};

// Variables by which credentials and region are found in other ways, when the job's environment has
// them.
constexpr std::array kAwsNames = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                  "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                  "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                  "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                  "AWS_WEB_IDENTITY_TOKEN_FILE",
                                  "AWS_ROLE_ARN",
                                  "AWS_ROLE_SESSION_NAME",
                                  "AWS_REGION",
                                  "AWS_DEFAULT_REGION"};

class MpiCommandMaker {
 public:
  explicit MpiCommandMaker(const MpiCommandInput& input) : input_(input), line_(input) {}

  MpiCommand make() {
    line_.add_hosts(/*with_slots=*/input_.outline.runner.processes_per_host != 1);
    line_.add({"--display-map"});
    line_.add({"--tag-output"});
    add_transport();
    line_.export_default("NCCL_MIN_NRINGS", "4");
    line_.export_nccl();
    line_.export_search_paths();
    line_.export_preload();
    line_.place_custom_options();
    line_.export_fabric();
    for (const char* name : kCredentials) line_.export_if_set(name);
    add_job_variables();
    add_model_parallel();
    return line_.finish({}, starter());
  }

 private:
  void add_transport() {
    line_.add_interface();
    line_.add({"-mca", "plm_rsh_no_tree_spawn", "1"});
    line_.add({"-bind-to", "none"});
    line_.add({"-map-by", "slot"});
    line_.add({"-mca", "pml", "ob1"});
    line_.add({"-mca", "btl", "^openib"});
    line_.add({"-mca", "orte_abort_on_non_zero_status", "1"});
    line_.add({"-mca", "btl_vader_single_copy_mechanism", "none"});
  }

  void add_job_variables() {
    const JobEnvironment& environment = input_.outline.environment.job;
    for (const auto* variables : {&environment.table, &environment.others}) {
      for (const Variable& variable : *variables) {
        if (variable.name.empty() || is_host_variable(variable.name)) continue;
        line_.export_name(variable.name);
      }
    }
    line_.export_if_set("OMP_NUM_THREADS");
    for (const char* name : kAwsNames) line_.export_if_set(name);
  }

  void add_model_parallel() {
    if (!input_.job.is_model_parallel()) return;
    const int torch = smp::leading_number<int>(input_.facts.torch_version).value_or(0);
    if (torch > 1) line_.export_default("NCCL_ALGO", "ring");
  }

  /// AWS's own wrapper, in images that have it.
  [[nodiscard]] Words starter() const {
    if (!input_.job.is_model_parallel() || !input_.facts.has_smddpmprun) return {};
    const opt_ml::Value* backend = input_.job.program.mp_parameters.find("ddp_dist_backend");
    if (backend != nullptr && *backend != opt_ml::Value("auto")) return {};
    return {"smddpmprun", "-i", input_.job.files.resources.current_instance_type, "--allow-bypass"};
  }

  const MpiCommandInput& input_;
  MpirunLine line_;
};

constexpr const char* kServerPort = "7592";

class SmddpCommandMaker {
 public:
  explicit SmddpCommandMaker(const MpiCommandInput& input) : input_(input), line_(input) {}

  MpiCommand make() {
    line_.add_hosts(/*with_slots=*/several_hosts());
    line_.add({"--tag-output"});
    line_.add({"--oversubscribe"});  // on one host no slots are given
    add_transport();
    line_.export_nccl();
    line_.export_search_paths();
    line_.export_value(
        several_hosts() ? "SMDATAPARALLEL_USE_HOMOGENEOUS" : "SMDATAPARALLEL_USE_SINGLENODE", "1");
    if (input_.outline.network.efa.enabled) line_.export_default("FI_PROVIDER", "efa");
    line_.export_default("RDMAV_FORK_SAFE", "1");
    line_.export_preload();
    line_.place_custom_options();
    line_.export_fabric();
    add_servers();
    return line_.finish({"--rank-variables"},
                        input_.facts.has_smddprun ? Words{"smddprun"} : Words{});
  }

 private:
  [[nodiscard]] bool several_hosts() const { return input_.outline.runner.hosts.size() > 1; }

  void add_transport() {
    line_.add_interface();
    line_.add({"-mca", "plm_rsh_no_tree_spawn", "1"});
    line_.add({"-mca", "pml", "ob1"});
    line_.add({"-mca", "btl", "^openib"});
    line_.add({"-mca", "orte_abort_on_non_zero_status", "1"});
    line_.add({"-mca", "btl_vader_single_copy_mechanism", "none"});
    line_.add(
        {"-mca", "plm_rsh_num_concurrent", std::to_string(input_.outline.runner.hosts.size())});
  }

  void add_servers() {
    if (!several_hosts()) return;
    line_.export_value("SMDATAPARALLEL_SERVER_ADDR", input_.job.hosts.master);
    line_.export_value("SMDATAPARALLEL_SERVER_PORT", kServerPort);
    line_.export_value("SAGEMAKER_INSTANCE_TYPE",
                       fabric_instance_types(input_.job, Runner::kSmddp).front());
  }

  const MpiCommandInput& input_;
  MpirunLine line_;
};

}  // namespace

void MpirunLine::add(const Words& words) {
  MpiOption option = group_mpi_options(words).front();
  // A variable that goes by value first and by name later counts once.
  const bool there = std::ranges::find(ours_, option.key, &MpiOption::key) != ours_.end();
  if (!there) ours_.push_back(std::move(option));
}

void MpirunLine::export_value(const std::string& name, const std::string& value) {
  add({"-x", name + "=" + value});
}

void MpirunLine::export_name(const std::string& name) { add({"-x", name}); }

void MpirunLine::export_default(const std::string& name, const std::string& value) {
  // The name would suffice for a value of the user's, but the value tells the command's reader
  // more.
  const std::string set_by_user = own(name);
  export_value(name, set_by_user.empty() ? value : set_by_user);
}

void MpirunLine::export_if_set(const std::string& name) {
  if (!own(name).empty()) export_name(name);
}

void MpirunLine::add_hosts(bool with_slots) {
  Words hosts;
  for (const std::string& host : input_.outline.runner.hosts) {
    hosts.push_back(
        with_slots ? fmt::format("{}:{}", host, input_.outline.runner.processes_per_host) : host);
  }
  add({"--host", fmt::format("{}", fmt::join(hosts, ","))});
  add({"-np", std::to_string(input_.outline.ranks.total_processes)});
  add({"--allow-run-as-root"});
}

void MpirunLine::add_interface() {
  if (input_.outline.network.interface_name.empty()) return;
  add({"-mca", "btl_tcp_if_include", input_.outline.network.interface_name});
  add({"-mca", "oob_tcp_if_include", input_.outline.network.interface_name});
}

void MpirunLine::export_nccl() {
  if (!input_.outline.network.interface_name.empty())
    export_default("NCCL_SOCKET_IFNAME", input_.outline.network.interface_name);
  if (input_.outline.mpi_options.nccl_debug) {
    export_value("NCCL_DEBUG", *input_.outline.mpi_options.nccl_debug);
  } else {
    export_default("NCCL_DEBUG", "INFO");
  }
}

void MpirunLine::export_fabric() {
  if (!input_.outline.network.efa.enabled) return;
  export_default("FI_PROVIDER", "efa");
  export_default("NCCL_PROTO", "simple");
  if (input_.outline.network.efa.device_rdma) export_default("FI_EFA_USE_DEVICE_RDMA", "1");
  // EFA and a data loader that forks corrupt memory without it. Its older name,
  // RDMAV_FORK_SAFE, slows allocation down: only when the user sets it.
  export_default("FI_EFA_FORK_SAFE", "1");
  export_if_set("RDMAV_FORK_SAFE");
  if (!input_.outline.network.efa.nccl_plugin.empty()) {
    export_default("NCCL_NET_PLUGIN", input_.outline.network.efa.nccl_plugin);
  }
}

void MpirunLine::export_search_paths() {
  export_if_set("LD_LIBRARY_PATH");
  export_name("PATH");
}

void MpirunLine::export_preload() {
  const std::string shim = input_.facts.hostname_shim.string();
  const std::string preload = own("LD_PRELOAD");
  if (!shim.empty()) {
    export_value("LD_PRELOAD", preload.empty() ? shim : shim + ":" + preload);
  } else if (!preload.empty()) {
    export_name("LD_PRELOAD");
  }
}

MpiCommand MpirunLine::finish(const Words& rank_exec_options, const Words& starter) const {
  MergedMpiOptions merged = merge_mpi_options(ours_, input_.outline.mpi_options.options);
  MpiCommand result{.argv = {"mpirun"}, .notes = std::move(merged.notes)};
  for (const MpiOption& option : merged.ours) {
    append(result.argv, option.words);
    if (!option.words.empty()) continue;
    for (const MpiOption& custom : merged.custom) append(result.argv, custom.words);
  }
  append(result.argv, {input_.facts.launcher.string(), "--rank-exec"});
  append(result.argv, rank_exec_options);
  if (!input_.command_file.empty())
    append(result.argv, {"--command-file", input_.command_file.string()});
  append(result.argv, {"--"});
  append(result.argv, starter);
  if (input_.command_file.empty()) append(result.argv, input_.command);
  return result;
}

std::string MpirunLine::own(std::string_view name) const {
  return smp::value_or(input_.job.environment, name);
}

MpiCommand make_mpi_command(const MpiCommandInput& input) { return MpiCommandMaker(input).make(); }

MpiCommand make_smddp_command(const MpiCommandInput& input) {
  return SmddpCommandMaker(input).make();
}

}  // namespace entrypoint
