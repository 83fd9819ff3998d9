// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpi_command.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "entrypoint/plan/environment.h"

namespace entrypoint {
namespace {

using Words = std::vector<std::string>;

constexpr std::array kCredentials = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
                                     "AWS_SESSION_TOKEN"};

// What finds credentials and region in other ways, when the job's environment has it.
constexpr std::array kAwsNames = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                                  "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                                  "AWS_CONTAINER_AUTHORIZATION_TOKEN",
                                  "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                                  "AWS_WEB_IDENTITY_TOKEN_FILE",
                                  "AWS_ROLE_ARN",
                                  "AWS_ROLE_SESSION_NAME",
                                  "AWS_REGION",
                                  "AWS_DEFAULT_REGION"};

int major_version(const std::string& version) {
  int major = 0;
  std::from_chars(version.data(), version.data() + version.size(), major);
  return major;
}

class Maker {
 public:
  explicit Maker(const MpiCommandInput& input) : input_(input) {}

  MpiCommand make() {
    add_hosts();
    add_transport();
    add_process_variables();
    ours_.push_back({});  // where the user's options go
    add_fabric();
    add_credentials();
    add_job_variables();
    add_model_parallel();

    MergedMpiOptions merged = merge_mpi_options(ours_, input_.custom.options);
    MpiCommand result{.argv = {"mpirun"}, .notes = std::move(merged.notes)};
    const auto append = [&](const Words& words) {
      result.argv.insert(result.argv.end(), words.begin(), words.end());
    };
    for (const MpiOption& option : merged.ours) {
      append(option.words);
      if (!option.words.empty()) continue;
      for (const MpiOption& custom : merged.custom) append(custom.words);
    }
    append({input_.facts.launcher.string(), "--rank-exec", "--"});
    append(starter());
    append(input_.command);
    return result;
  }

 private:
  /// A variable that goes by value first and by name later counts once.
  void add(const Words& words) {
    MpiOption option = group_mpi_options(words).front();
    const bool there = std::ranges::find(ours_, option.key, &MpiOption::key) != ours_.end();
    if (!there) ours_.push_back(std::move(option));
  }
  void export_value(const std::string& name, const std::string& value) {
    add({"-x", name + "=" + value});
  }
  void export_name(const std::string& name) { add({"-x", name}); }

  [[nodiscard]] std::string own(std::string_view name) const {
    return value_or(input_.job.environment, name);
  }

  /// The job's environment wins over our value; then the name suffices, too, but the value in the
  /// command tells its reader more.
  void export_default(const std::string& name, const std::string& value) {
    const std::string set_by_user = own(name);
    export_value(name, set_by_user.empty() ? value : set_by_user);
  }

  void add_hosts() {
    Words slots;
    for (const std::string& host : input_.hosts) {
      const bool one = input_.processes_per_host == 1;
      slots.push_back(one ? host : fmt::format("{}:{}", host, input_.processes_per_host));
    }
    add({"--host", fmt::format("{}", fmt::join(slots, ","))});
    add({"-np", std::to_string(input_.total_processes)});
    add({"--allow-run-as-root"});
    add({"--display-map"});
    add({"--tag-output"});
  }

  void add_transport() {
    if (!input_.interface_name.empty()) {
      add({"-mca", "btl_tcp_if_include", input_.interface_name});
      add({"-mca", "oob_tcp_if_include", input_.interface_name});
    }
    add({"-mca", "plm_rsh_no_tree_spawn", "1"});
    add({"-bind-to", "none"});
    add({"-map-by", "slot"});
    add({"-mca", "pml", "ob1"});
    add({"-mca", "btl", "^openib"});
    add({"-mca", "orte_abort_on_non_zero_status", "1"});
    add({"-mca", "btl_vader_single_copy_mechanism", "none"});
  }

  void add_process_variables() {
    export_default("NCCL_MIN_NRINGS", "4");
    if (!input_.interface_name.empty()) {
      export_default("NCCL_SOCKET_IFNAME", input_.interface_name);
    }
    if (input_.custom.nccl_debug) {
      export_value("NCCL_DEBUG", *input_.custom.nccl_debug);
    } else {
      export_default("NCCL_DEBUG", "INFO");
    }
    // mpirun warns of a name that is not set.
    if (!own("LD_LIBRARY_PATH").empty()) export_name("LD_LIBRARY_PATH");
    export_name("PATH");
    const std::string shim = input_.facts.hostname_shim.string();
    const std::string preload = own("LD_PRELOAD");
    if (!shim.empty()) {
      export_value("LD_PRELOAD", preload.empty() ? shim : shim + ":" + preload);
    } else if (!preload.empty()) {
      export_name("LD_PRELOAD");
    }
  }

  void add_fabric() {
    if (!input_.efa.enabled) return;
    export_default("FI_PROVIDER", "efa");
    export_default("NCCL_PROTO", "simple");
    if (!input_.efa.device_rdma) return;
    export_default("FI_EFA_USE_DEVICE_RDMA", "1");
    // Device RDMA and a data loader that forks corrupt memory without these.
    export_default("FI_EFA_FORK_SAFE", "1");
    export_default("RDMAV_FORK_SAFE", "1");
  }

  void add_credentials() {
    for (const char* name : kCredentials) {
      if (!own(name).empty()) export_name(name);
    }
  }

  void add_job_variables() {
    for (const auto* variables : {&input_.table, &input_.others}) {
      for (const Variable& variable : *variables) {
        if (variable.name.empty() || is_host_variable(variable.name)) continue;
        export_name(variable.name);
      }
    }
    if (!own("OMP_NUM_THREADS").empty()) export_name("OMP_NUM_THREADS");
    for (const char* name : kAwsNames) {
      if (!own(name).empty()) export_name(name);
    }
  }

  void add_model_parallel() {
    if (!input_.job.is_model_parallel()) return;
    if (major_version(input_.facts.torch_version) > 1) export_default("NCCL_ALGO", "ring");
  }

  /// AWS's own wrapper, in images that have it.
  [[nodiscard]] Words starter() const {
    if (!input_.job.is_model_parallel() || !input_.facts.has_smddpmprun) return {};
    const opt_ml::Value* backend = input_.job.mp_parameters.find("ddp_dist_backend");
    if (backend != nullptr && *backend != opt_ml::Value("auto")) return {};
    return {"smddpmprun", "-i", input_.job.resources.current_instance_type, "--allow-bypass"};
  }

  const MpiCommandInput& input_;
  std::vector<MpiOption> ours_;
};

}  // namespace

MpiCommand make_mpi_command(const MpiCommandInput& input) { return Maker(input).make(); }

}  // namespace entrypoint
