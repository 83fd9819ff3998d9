// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/mpirun_line.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/environment.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/entrypoint/plan/launch_plans.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::message_of;

TEST(SmddpCommand, OneHostIsWordForWord) {
  EXPECT_THAT(
      plan_of(a_job().with_smddp(2)).command.argv,
      ElementsAre("mpirun", "--host", "algo-1", "-np", "2", "--allow-run-as-root", "--tag-output",
                  "--oversubscribe", "-mca", "btl_tcp_if_include", "eth0", "-mca",
                  "oob_tcp_if_include", "eth0", "-mca", "plm_rsh_no_tree_spawn", "1", "-mca", "pml",
                  "ob1", "-mca", "btl", "^openib", "-mca", "orte_abort_on_non_zero_status", "1",
                  "-mca", "btl_vader_single_copy_mechanism", "none", "-mca",
                  "plm_rsh_num_concurrent", "1", "-x", "NCCL_SOCKET_IFNAME=eth0", "-x",
                  "NCCL_DEBUG=INFO", "-x", "PATH", "-x", "SMDATAPARALLEL_USE_SINGLENODE=1", "-x",
                  "RDMAV_FORK_SAFE=1", "-x", "LD_PRELOAD=/opt/smp/libhostname.so",
                  "/opt/smp/bin/train", "--rank-exec", "--rank-variables", "--", "/usr/bin/python3",
                  "-m", "mpi4py", "train.py"));
}

TEST(SmddpCommand, SeveralHostsHaveSlotsAndAServer) {
  const LaunchPlan plan = plan_of(a_job()
                                      .with_hosts({"algo-1", "algo-2"})
                                      .on_instance("ml.p3.16xlarge")
                                      .with("sagemaker_instance_type", "ml.p4d.24xlarge")
                                      .with_smddp(1));

  EXPECT_TRUE(has_sequence(plan.command.argv, {"--host", "algo-1:1,algo-2:1", "-np", "2"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"plm_rsh_num_concurrent", "2"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "SMDATAPARALLEL_USE_HOMOGENEOUS=1"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "SMDATAPARALLEL_SERVER_ADDR=algo-1", "-x",
                                               "SMDATAPARALLEL_SERVER_PORT=7592", "-x",
                                               "SAGEMAKER_INSTANCE_TYPE=ml.p4d.24xlarge"}));
  EXPECT_EQ(plan.outline.runner.role, Role::kMaster);
  EXPECT_TRUE(plan.outline.runner.spans_hosts());
  EXPECT_EQ(plan.outline.ranks.places.size(), 2);
}

TEST(SmddpCommand, WithoutAnInstanceTypeItIsTheHosts) {
  EXPECT_TRUE(has_sequence(
      plan_of(a_job().with_hosts({"algo-1", "algo-2"}).on_instance("ml.p4d.24xlarge").with_smddp(8))
          .command.argv,
      {"-x", "SAGEMAKER_INSTANCE_TYPE=ml.p4d.24xlarge"}));
}

TEST(SmddpCommand, NoVariableOfTheTableIsExportedButTheHostGivesThem) {
  const LaunchPlan worker = plan_of(
      a_job().with_hosts({"algo-1", "algo-2"}).on_host("algo-2").with_smddp(2).with("lr", 1));
  const LaunchPlan master = plan_of(a_job()
                                        .with_hosts({"algo-1", "algo-2"})
                                        .with_smddp(2)
                                        .with("lr", 1)
                                        .with_variable("AWS_SECRET_ACCESS_KEY", "hidden"));

  EXPECT_THAT(master.command.argv, Each(Not(StartsWith("SM_"))));
  EXPECT_THAT(master.command.argv, Each(Not(HasSubstr("AWS_"))));
  EXPECT_THAT(worker.command.argv, ElementsAre());
  for (const char* name : {"SM_HP_LR", "SM_HOSTS", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_NE(find_variable(worker.outline.environment.variables, name), nullptr) << name;
  }
  EXPECT_EQ(*find_variable(worker.outline.environment.variables, "MASTER_ADDR"), "algo-1");
  EXPECT_EQ(*find_variable(worker.outline.environment.host_variables, "SM_CURRENT_HOST"), "algo-2");
  EXPECT_EQ(*find_variable(worker.outline.environment.host_variables, "OMP_NUM_THREADS"), "2");
}

TEST(SmddpCommand, EfaIsUsedOnlyWhereItIs) {
  const Words without = plan_of(a_job().with_smddp(1)).command.argv;
  EXPECT_THAT(without, Each(Not(HasSubstr("FI_"))));
  EXPECT_THAT(without, Each(Not(HasSubstr("NCCL_PROTO"))));

  const Words with =
      plan_of(a_job().with_smddp(1).with("sagemaker_instance_type", "ml.p4d.24xlarge"))
          .command.argv;
  EXPECT_TRUE(has_sequence(with, {"-x", "FI_PROVIDER=efa", "-x", "RDMAV_FORK_SAFE=1", "-x"}));
  EXPECT_TRUE(has_sequence(with, {"-x", "NCCL_PROTO=simple", "-x", "FI_EFA_USE_DEVICE_RDMA=1", "-x",
                                  "FI_EFA_FORK_SAFE=1"}));
}

TEST(SmddpCommand, ItsOwnCustomOptionsWin) {
  const LaunchPlan plan =
      plan_of(a_job()
                  .with_smddp(1)
                  .on_instance("ml.p4d.24xlarge")
                  .with("sagemaker_mpi_custom_mpi_options", "-x OF=mpi")
                  .with("sagemaker_distributed_dataparallel_custom_mpi_options",
                        "-verbose --NCCL_DEBUG WARN -x NCCL_PROTO=LL --mca pml cm -np 3"));

  EXPECT_TRUE(
      has_sequence(plan.command.argv, {"-verbose", "-x", "NCCL_PROTO=LL", "--mca", "pml", "cm",
                                       "-np", "3", "-x", "FI_EFA_USE_DEVICE_RDMA=1"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "NCCL_DEBUG=WARN"}));
  EXPECT_THAT(plan.command.argv, Not(Contains("OF=mpi")));
  EXPECT_EQ(std::ranges::count(plan.command.argv, "pml"), 1);
  EXPECT_EQ(plan.outline.ranks.total_processes, 3);

  EXPECT_THAT(message_of([] {
                plan_of(a_job().with_smddp(1).with(
                    "sagemaker_distributed_dataparallel_custom_mpi_options", "-x 'A"));
              }),
              StartsWith("hyperparameter "
                         "\"sagemaker_distributed_dataparallel_custom_mpi_options\": the quote"));
}

TEST(SmddpCommand, TheCountOfTheMpiRunnerIsNotItsOwn) {
  EXPECT_EQ(plan_of(a_job().with_smddp(2).with("sagemaker_mpi_num_processes", 7))
                .outline.ranks.total_processes,
            2);
}

TEST(SmddpCommand, AmazonsStarterIsUsedWhereItIs) {
  HostFacts facts = a_machine();
  facts.has_smddprun = true;

  EXPECT_TRUE(has_sequence(plan_of(a_job().with_smddp(2), facts).command.argv,
                           {"--rank-variables", "--", "smddprun", "/usr/bin/python3", "-m"}));
  EXPECT_THAT(plan_of(a_job().with_smddp(2)).notes,
              Contains("smddprun not being used as smddp is not installed"));
}

}  // namespace
}  // namespace entrypoint
