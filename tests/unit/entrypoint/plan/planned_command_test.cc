// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/planned_command.h"

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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;
using testing_support::message_of;

TEST(TorchrunCommand, OneHostNeedsNoAddress) {
  const LaunchPlan plan = plan_of(a_job().with_torchrun(4).with("lr", "0.1"));

  EXPECT_THAT(plan.command.argv, ElementsAre("torchrun", "--nnodes", "1", "--nproc_per_node", "4",
                                             "--master_port", "7777", "train.py", "--lr", "0.1"));
  EXPECT_EQ(value_of(plan, "SM_MASTER_PORT"), "7777");
  EXPECT_EQ(plan.command.user_command, plan.command.argv);
  EXPECT_EQ(plan.outline.ranks.total_processes, 4);
  EXPECT_EQ(plan.outline.ranks.places.size(), 4);
  EXPECT_FALSE(plan.outline.runner.spans_hosts());
  EXPECT_THAT(plan.outline.environment.host_variables, IsEmpty());
}

TEST(TorchrunCommand, EveryHostRunsItWithItsOwnNodeRank) {
  const JobBuilder job = a_job()
                             .with_hosts({"algo-1", "algo-2", "algo-3"})
                             .with_group("train", {"algo-3", "algo-1"})
                             .with_group("data", {"algo-2"})
                             .in_group("train")
                             .with_torchrun(8);

  const LaunchPlan plan = plan_of(job);

  EXPECT_EQ(plan.outline.runner.role, Role::kAlone);
  EXPECT_THAT(plan.command.argv,
              ElementsAre("torchrun", "--nnodes", "2", "--nproc_per_node", "8", "--master_addr",
                          "algo-3", "--master_port", "7777", "--node_rank", "1", "train.py"));
  EXPECT_TRUE(
      has_sequence(plan_of(JobBuilder(job).on_host("algo-3")).command.argv, {"--node_rank", "0"}));
  EXPECT_EQ(plan.outline.ranks.places[8].host, "algo-1");
  EXPECT_FALSE(plan.outline.runner.spans_hosts());  // torchrun needs no ssh
}

TEST(TorchrunCommand, TheUsersRendezvousWins) {
  const JobBuilder job = a_job().with_torchrun(2).with_variable("MASTER_PORT", "12345");

  EXPECT_TRUE(has_sequence(plan_of(job).command.argv,
                           {"--nproc_per_node", "2", "--master_port", "12345", "train.py"}));
  EXPECT_TRUE(has_sequence(
      plan_of(
          JobBuilder(job).with_hosts({"algo-1", "algo-2"}).with_variable("MASTER_ADDR", "10.0.0.9"))
          .command.argv,
      {"--master_addr", "10.0.0.9", "--master_port", "12345"}));
}

TEST(TorchrunCommand, TheNextStartMeetsAtAPortOfItsOwn) {
  const JobConfig job =
      a_job().with_hosts({"algo-1", "algo-2"}).with_torchrun(2).with_variable("MASTER_PORT", "400");

  const LaunchPlan second = plan_next_start(job, a_machine(), plan_of(job).outline);
  const LaunchPlan third = plan_next_start(job, a_machine(), second.outline);

  EXPECT_TRUE(has_sequence(second.command.argv, {"--master_port", "401"}));
  EXPECT_TRUE(has_sequence(third.command.argv, {"--master_port", "402"}));
  EXPECT_EQ(value_of(third, "MASTER_PORT"), "402");
  EXPECT_EQ(value_of(third, "SM_MASTER_PORT"), "402");
}

TEST(TorchrunCommand, CpusAreSharedAmongTheWorkers) {
  EXPECT_EQ(value_of(plan_of(a_job().with_torchrun(2)), "OMP_NUM_THREADS"), "2");
  EXPECT_EQ(value_of(plan_of(a_job().with_torchrun(2).with_variable("OMP_NUM_THREADS", "3")),
                     "OMP_NUM_THREADS"),
            "(absent)");  // inherited
}

TEST(TorchrunCommand, OnlyPythonScriptsCanBeStarted) {
  const auto error_of = [](const JobBuilder& job) { return message_of([&] { plan_of(job); }); };

  EXPECT_THAT(error_of(a_job().with_torchrun(1).with_code(
                  {.entries = {"setup.py", "train.py"}, .entry_point_exists = true})),
              StartsWith("Python packages are not supported for torch_distributed. "));
  EXPECT_THAT(error_of(a_job().with_torchrun(1).with_entry_point("run.sh")),
              StartsWith("Unsupported entry point type for torch_distributed"));
}

TEST(TorchrunCommand, AModuleIsRunByItsName) {
  EXPECT_THAT(
      plan_of(
          a_job().with_torchrun(2).with("sagemaker_program", "-m recipes.train").with("lr", "0.1"))
          .command.argv,
      ElementsAre("torchrun", "--nnodes", "1", "--nproc_per_node", "2", "--master_port", "7777",
                  "-m", "recipes.train", "--lr", "0.1"));
}

TEST(TorchrunCommand, AnInterpreterOfTheUsersRunsTheModule) {
  EXPECT_TRUE(
      has_sequence(plan_of(a_job().with_torchrun(2).with_variable("SM_LAUNCH_PYTHON", "python3.12"))
                       .command.argv,
                   {"/usr/bin/python3", "-m", "torch.distributed.run", "--nnodes", "1"}));

  HostFacts facts = a_machine();
  facts.has_torchrun = false;
  EXPECT_THAT(plan_of(a_job().with_torchrun(2), facts).command.argv.at(2), "torch.distributed.run");

  facts.torch_version.clear();
  EXPECT_THAT(message_of([&] { plan_of(a_job().with_torchrun(2), facts); }),
              HasSubstr("not on PATH, and /usr/bin/python3 has no torch; install torch"));
}

TEST(TorchrunCommand, NeuronGraphsAreCompiledAheadOnRequest) {
  EXPECT_TRUE(has_sequence(
      plan_of(a_job().with_torchrun(2).with_variable("RUN_NEURON_PARALLEL_COMPILE", "1"))
          .command.argv,
      {"neuron_parallel_compile", "torchrun", "--nnodes"}));
}

TEST(TorchrunCommand, TheFabricsVariablesFollowTheInstanceType) {
  const LaunchPlan p4d = plan_of(a_job().with_torchrun(8).on_instance("ml.p4d.24xlarge"));
  for (const auto& [name, value] :
       std::vector<std::pair<const char*, const char*>>{{"FI_PROVIDER", "efa"},
                                                        {"NCCL_PROTO", "simple"},
                                                        {"FI_EFA_USE_DEVICE_RDMA", "1"},
                                                        {"RDMAV_FORK_SAFE", "1"},
                                                        {"FI_EFA_FORK_SAFE", "1"},
                                                        {"NCCL_IB_DISABLE", "(absent)"}}) {
    EXPECT_EQ(value_of(p4d, name), value) << name;
  }

  const LaunchPlan g5 = plan_of(a_job().with_torchrun(8).on_instance("ml.g5.48xlarge"));
  EXPECT_EQ(value_of(g5, "FI_EFA_FORK_SAFE"), "1");
  EXPECT_EQ(value_of(g5, "FI_EFA_USE_DEVICE_RDMA"), "(absent)");
  EXPECT_EQ(value_of(g5, "RDMAV_FORK_SAFE"), "(absent)");

  const LaunchPlan plain = plan_of(a_job().with_torchrun(8).on_instance("ml.g4dn.xlarge"));
  EXPECT_EQ(value_of(plain, "NCCL_PROTO"), "(absent)");
  EXPECT_EQ(value_of(plain, "NCCL_IB_DISABLE"), "1");

  // A value of the job's environment is inherited, so nothing is set over it.
  EXPECT_EQ(value_of(plan_of(a_job()
                                 .with_torchrun(8)
                                 .on_instance("ml.p4d.24xlarge")
                                 .with_variable("NCCL_PROTO", "LL128")),
                     "NCCL_PROTO"),
            "(absent)");
}

TEST(TorchrunCommand, TheHostNameIsPreloadedHereToo) {
  EXPECT_EQ(value_of(plan_of(a_job().with_torchrun(2).with_variable("LD_PRELOAD", "/mine.so")),
                     "LD_PRELOAD"),
            "/opt/smp/libhostname.so:/mine.so");
}

TEST(TorchrunCommand, MoreProcessesThanGpusIsAWarning) {
  HostFacts facts = a_machine();
  facts.num_gpus = 4;

  EXPECT_THAT(plan_of(a_job().with_torchrun(8), facts).warnings,
              Contains(HasSubstr("8 processes per host, but host algo-1 has 4 GPUs")));
}

}  // namespace
}  // namespace entrypoint
