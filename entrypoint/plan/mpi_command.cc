// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "entrypoint/plan/mpirun_line.h"
#include "entrypoint/plan/words.h"
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
    const opt_ml::Value* backend = input_.job.mp_parameters.find("ddp_dist_backend");
    if (backend != nullptr && *backend != opt_ml::Value("auto")) return {};
    return {"smddpmprun", "-i", input_.job.resources.current_instance_type, "--allow-bypass"};
  }

  const MpiCommandInput& input_;
  MpirunLine line_;
};

}  // namespace

MpiCommand make_mpi_command(const MpiCommandInput& input) { return MpiCommandMaker(input).make(); }

}  // namespace entrypoint
