// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpirun_line.h"
#include "entrypoint/plan/words.h"

namespace entrypoint {
namespace {

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
    line_.export_value("SMDATAPARALLEL_SERVER_ADDR", input_.job.master);
    line_.export_value("SMDATAPARALLEL_SERVER_PORT", kServerPort);
    line_.export_value("SAGEMAKER_INSTANCE_TYPE",
                       fabric_instance_types(input_.job, Runner::kSmddp).front());
  }

  const MpiCommandInput& input_;
  MpirunLine line_;
};

}  // namespace

MpiCommand make_smddp_command(const MpiCommandInput& input) {
  return SmddpCommandMaker(input).make();
}

}  // namespace entrypoint
