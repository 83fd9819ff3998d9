// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/cluster_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/cluster/host_list.h"
#include "tests/unit/refusal.h"

namespace smp::cluster {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Variables kStep{{"SLURM_JOB_ID", "7"},         {"SLURM_STEP_ID", "0"},
                      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NODELIST", "gpu[1-2]"},
                      {"SLURM_STEP_NUM_NODES", "2"}, {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                      {"SLURM_NODEID", "1"},         {"SLURMD_NODENAME", "gpu2"},
                      {"SLURM_PROCID", "1"},         {"SLURM_JOB_NODELIST", "gpu[1-9]"}};
const Variables kBatchScript{{"SLURM_JOB_ID", "7"},
                             {"SLURM_JOB_NODELIST", "gpu[1-2]"},
                             {"SLURM_JOB_NUM_NODES", "2"},
                             {"SLURM_NODEID", "0"},
                             {"SLURM_PROCID", "0"}};
const Variables kLauncher{{"K_MPI_JOB_ROLE", "launcher"},
                          {"OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile"},
                          {"HOSTNAME", "digits-launcher"}};
const Variables kTorch{{"PET_NNODES", "3"},
                       {"PET_NPROC_PER_NODE", "2"},
                       {"PET_NODE_RANK", "1"},
                       {"PET_MASTER_ADDR", "digits-node-0-0.digits"},
                       {"PET_MASTER_PORT", "29400"}};
const Variables kAwsBatch{{"AWS_BATCH_JOB_ID", "d4c3#2"},
                          {"AWS_BATCH_JOB_NUM_NODES", "3"},
                          {"AWS_BATCH_JOB_NODE_INDEX", "2"},
                          {"AWS_BATCH_JOB_MAIN_NODE_INDEX", "1"},
                          {"AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS", "10.0.0.7"}};

Variables having(Variables variables, const char* name, const char* text) {
  variables[name] = text;
  return variables;
}
Variables lacking(Variables variables, const char* name) {
  variables.erase(name);
  return variables;
}

TEST(HostList, IsExpanded) {
  EXPECT_THAT(expand_host_list("a", "L"), ElementsAre("a"));
  EXPECT_THAT(expand_host_list("a[1-3,07],b", "L"), ElementsAre("a1", "a2", "a3", "a07", "b"));
  EXPECT_THAT(expand_host_list("r[1-2]n[08-10]-x", "L"),
              ElementsAre("r1n08-x", "r1n09-x", "r1n10-x", "r2n08-x", "r2n09-x", "r2n10-x"));
  EXPECT_THAT(expand_host_list("n[0-9999]", "L"), SizeIs(10000));
}

TEST(HostList, OfAnotherFormIsRefused) {
  for (const char* text : {"", "a,", "a[1", "a]1[", "a[]", "a[3-1]", "a[x]", "a[1-2-3]", "a[[1]]",
                           "a[0-99999999]", "a[0-999]b[0-999]", "a[1-1000000000000]"}) {
    EXPECT_THAT(refusal([&] { expand_host_list(text, "SLURM_STEP_NODELIST"); }),
                HasSubstr("SLURM_STEP_NODELIST is \""))
        << text;
  }
}

TEST(Counts, AreExpanded) {
  EXPECT_THAT(expand_counts("2(x3),1", "L"), ElementsAre(2, 2, 2, 1));
  for (const char* text : {"", "2(x", "2(x3", "x", "2(x99999999)", "-1"}) {
    EXPECT_THAT(refusal([&] { expand_counts(text, "TASKS"); }), HasSubstr("TASKS is \"")) << text;
  }
}

TEST(ClusterJob, IsNoneOutsideOfClusters) {
  EXPECT_FALSE(read_cluster({{"PATH", "/bin"}, {"RANK", "0"}}, std::nullopt));
}

TEST(ClusterJob, OfAStepOfSlurm) {
  const auto job = read_cluster(kStep, std::nullopt);

  ASSERT_TRUE(job);
  EXPECT_EQ(job->title(), "Slurm job 7, 2 nodes");
  EXPECT_EQ(job->reason, "SLURM_STEP_NODELIST");
  EXPECT_THAT(job->hosts, ElementsAre("gpu1", "gpu2"));
  EXPECT_EQ(job->host_number, 1);
  EXPECT_EQ(job->tasks_per_host(), 1);
  EXPECT_TRUE(job->whole);
  EXPECT_EQ(read_cluster(having(kStep, "SLURM_RESTART_COUNT", "2"), std::nullopt)->title(),
            "Slurm job 7, 2 nodes, restart 2");
}

TEST(ClusterJob, OfABatchScriptOfSlurmIsWholeOnOneNode) {
  const auto two = read_cluster(kBatchScript, std::nullopt);
  const auto one = read_cluster(
      having(having(kBatchScript, "SLURM_JOB_NODELIST", "gpu1"), "SLURM_JOB_NUM_NODES", "1"),
      std::nullopt);
  const auto shell_of_salloc = read_cluster(lacking(kBatchScript, "SLURM_NODEID"), std::nullopt);

  EXPECT_FALSE(two->whole);
  EXPECT_TRUE(one->whole);
  EXPECT_EQ(one->title(), "Slurm job 7, 1 node");
  EXPECT_FALSE(shell_of_salloc->host_number);
}

TEST(ClusterJob, OfSlurmRefusesWhatDoesNotFitTogether) {
  for (const auto& [variables, text] :
       {std::pair{lacking(kStep, "SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST is not set"},
        {lacking(kStep, "SLURM_NODEID"), "SLURM_NODEID is not set"},
        {having(kStep, "SLURM_NODEID", "2"), "SLURM_NODEID is 2, and the job has 2 hosts"},
        {having(kStep, "SLURM_NODEID", "first"), "expected a number"},
        {having(kStep, "SLURMD_NODENAME", "gpu1"), "the variables are of two jobs"},
        {having(kStep, "SLURM_STEP_NUM_NODES", "3"), "is of 2 hosts and SLURM_STEP_NUM_NODES of 3"},
        {having(kStep, "SLURM_STEP_TASKS_PER_NODE", "1(x3)"), "of 3"}}) {
    EXPECT_THAT(refusal([&, &variables = variables] { read_cluster(variables, std::nullopt); }),
                AllOf(HasSubstr("Slurm job 7"), HasSubstr(text)));
  }
}

TEST(ClusterJob, OfSlurmRefusesAPmixThatOpenMpiCannotTalkTo) {
  Variables step = having(kStep, "PMIX_NAMESPACE", "slurm.pmix.7.0");
  step = having(step, "PMIX_VERSION", "7.1.0");
  step = having(step, "PMIX_SERVER_URI7", "pmix-server.26;tcp4://127.0.0.1:49181");

  EXPECT_THAT(
      refusal([&] { read_cluster(step, std::nullopt); }),
      AllOf(HasSubstr("PMIx 7.1.0"), HasSubstr("versions 2 to 4"), HasSubstr("--mpi=none")));
  EXPECT_THAT(refusal([&] { read_cluster(lacking(step, "PMIX_VERSION"), std::nullopt); }),
              HasSubstr("of an unnamed version"));
  EXPECT_TRUE(read_cluster(having(step, "PMIX_SERVER_URI4", "x"), std::nullopt));
}

TEST(ClusterJob, OfAnMpiJobIsItsHostfile) {
  const auto job = read_cluster(kLauncher,
                                "# made by the controller\n"
                                "digits-worker-0.digits.default.svc slots=2\n"
                                "digits-worker-1.digits.default.svc slots=2\n");

  ASSERT_TRUE(job);
  EXPECT_EQ(job->title(), "MPIJob, 2 hosts");
  EXPECT_EQ(job->reason, "K_MPI_JOB_ROLE and /etc/mpi/hostfile");
  EXPECT_THAT(job->hosts, ElementsAre("digits-worker-0.digits.default.svc",
                                      "digits-worker-1.digits.default.svc"));
  EXPECT_THAT(job->tasks, ElementsAre(2, 2));
  EXPECT_FALSE(job->host_number) << "the launcher runs no ranks";
}

TEST(ClusterJob, OfALauncherThatIsANodeKnowsItself) {
  Variables variables = having(kLauncher, "HOSTNAME", "digits-launcher-0-0");
  variables.erase("K_MPI_JOB_ROLE");
  variables["OMPI_MCA_orte_set_default_slots"] = "3";

  const auto job =
      read_cluster(variables, "digits-launcher-0-0.digits\ndigits-node-0-0.digits:2 max_slots=9\n");

  EXPECT_EQ(job->host_number, 0);
  EXPECT_THAT(job->tasks, ElementsAre(3, 2));
  EXPECT_EQ(job->reason, "/etc/mpi/hostfile");
}

TEST(ClusterJob, OfAHostfileRefusesWhatDoesNotFitTogether) {
  const std::string one = "a slots=1\n";
  for (const auto& [variables, hostfile, text] :
       {std::tuple{kLauncher, std::optional<std::string>(), "there is no /etc/mpi/hostfile"},
        {kLauncher, std::optional(std::string("\n# none\n")), "names no host"},
        {kLauncher, std::optional(one + one), "is there twice"},
        {kLauncher, std::optional(std::string("a slots=two")), "slots=2"},
        {kLauncher, std::optional(std::string("a slots=0")), "slots=2"},
        {having(kLauncher, "PET_NNODES", "2"), std::optional(one),
         "of 1 hosts and PET_NNODES of 2"},
        {having(kLauncher, "K_MPI_JOB_ROLE", "worker"), std::optional<std::string>(),
         "leave the worker's command out"}}) {
    EXPECT_THAT(refusal([&, &variables = variables, &hostfile = hostfile] {
                  read_cluster(variables, hostfile);
                }),
                HasSubstr(text));
  }
}

TEST(ClusterJob, OfATrainJobWithTorch) {
  const auto job = read_cluster(kTorch, std::nullopt);

  ASSERT_TRUE(job);
  EXPECT_EQ(job->title(), "TrainJob, 3 nodes");
  EXPECT_THAT(job->hosts, ElementsAre("digits-node-0-0.digits", "digits-node-0-1.digits",
                                      "digits-node-0-2.digits"));
  EXPECT_EQ(job->host_number, 1);
  EXPECT_EQ(job->tasks_per_host(), 2);
  EXPECT_FALSE(read_cluster(having(kTorch, "PET_NPROC_PER_NODE", "auto"), {})->tasks_per_host());
  EXPECT_THAT(read_cluster(having(kTorch, "PET_MASTER_ADDR", "10.0.0.1"), {})->hosts,
              ElementsAre("10.0.0.1", "node-1", "node-2"));
}

TEST(ClusterJob, OfATrainJobWithTorchNamesWhatIsMissing) {
  for (const char* name : {"PET_NODE_RANK", "PET_MASTER_ADDR"}) {
    EXPECT_THAT(refusal([&] { read_cluster(lacking(kTorch, name), {}); }),
                AllOf(HasSubstr("TrainJob: "), HasSubstr(name), HasSubstr("is not set")));
  }
  EXPECT_THAT(refusal([&] { read_cluster(having(kTorch, "PET_NODE_RANK", "3"), {}); }),
              HasSubstr("PET_NODE_RANK is 3, and the job has 3 hosts"));
}

TEST(ClusterJob, OfAwsBatchKnowsTheMainNodeOnly) {
  const auto job = read_cluster(kAwsBatch, std::nullopt);

  ASSERT_TRUE(job);
  EXPECT_EQ(job->title(), "AWS Batch job d4c3, 3 nodes");
  EXPECT_THAT(job->hosts, IsEmpty());
  EXPECT_EQ(job->main_host, "10.0.0.7");
  // The main node is the first, the other two follow in their order.
  EXPECT_EQ(job->host_number, 2);
  EXPECT_EQ(read_cluster(having(kAwsBatch, "AWS_BATCH_JOB_NODE_INDEX", "0"), {})->host_number, 1);
  const auto main = read_cluster(having(kAwsBatch, "AWS_BATCH_JOB_NODE_INDEX", "1"), {});
  EXPECT_EQ(main->host_number, 0);
  EXPECT_EQ(main->main_host, "");
}

TEST(ClusterJob, OfAwsBatchNamesWhatIsMissing) {
  for (const char* name : {"AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_MAIN_NODE_INDEX",
                           "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS"}) {
    EXPECT_THAT(refusal([&] { read_cluster(lacking(kAwsBatch, name), {}); }),
                AllOf(HasSubstr("AWS Batch job d4c3: "), HasSubstr(name)));
  }
}

TEST(FirstHost, IsThatOfTheStepBeforeThatOfTheJob) {
  EXPECT_EQ(first_host(having(kStep, "SLURM_STEP_NODELIST", "gpu[5-6]")), "gpu5");
  EXPECT_EQ(first_host(kBatchScript), "gpu1");
  EXPECT_EQ(first_host(kTorch), "");
}

}  // namespace
}  // namespace smp::cluster
