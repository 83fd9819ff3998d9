// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/cluster_resources.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/refusal.h"

namespace entrypoint {
namespace {

namespace fs = std::filesystem;
using smp::refusal;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

ClusterJob a_step() {
  return {.cluster = Cluster::kSlurm,
          .name = "Slurm job 7",
          .reason = "SLURM_STEP_NODELIST",
          .host_count = 2,
          .hosts = {"gpu1", "gpu2"},
          .host_number = 1,
          .tasks = {1, 1},
          .main_host = "gpu1"};
}

TEST(ClusterResources, SayWhatTheFileWouldSay) {
  const opt_ml::ResourceConfig resources = make_resources(a_step(), "gpu2");

  EXPECT_EQ(resources.current_host, "gpu2");
  EXPECT_THAT(resources.hosts, ElementsAre("gpu1", "gpu2"));
  EXPECT_THAT(resources.group_hosts(resources.current_group_name), ElementsAre("gpu1", "gpu2"));
  EXPECT_EQ(*resources.document.find("current_host")->text(), "gpu2");
}

TEST(ClusterResources, OfALauncherNameItself) {
  ClusterJob job = a_step();
  job.cluster = Cluster::kHostfile;
  job.host_number.reset();

  EXPECT_EQ(make_resources(job, "digits-launcher").current_host, "digits-launcher");
}

TEST(ClusterResources, AreRefusedWhereTrainCannotRun) {
  ClusterJob batch_script = a_step();
  batch_script.whole = false;
  ClusterJob tasks = a_step();
  tasks.tasks = {4, 2};
  ClusterJob shell = a_step();
  shell.host_number.reset();
  for (const auto& [job, text] : {std::pair{batch_script, "batch script"},
                                  {tasks, "up to 4 tasks a node"},
                                  {shell, "is on none of its nodes"}}) {
    EXPECT_THAT(refusal([&, &job = job] { make_resources(job, "login"); }),
                AllOf(HasSubstr("Slurm job 7"), HasSubstr(text)));
  }
}

TEST(ClusterResources, AgreeWithATreeOfAsManyHosts) {
  opt_ml::ResourceConfig resources;
  resources.hosts = {"algo-1", "algo-2"};
  check_agreement(a_step(), resources, "resourceconfig.json");
  resources.hosts.emplace_back("algo-3");

  EXPECT_THAT(refusal([&] { check_agreement(a_step(), resources, "resourceconfig.json"); }),
              AllOf(HasSubstr("resourceconfig.json names 3 hosts, and Slurm job 7 has 2"),
                    HasSubstr("SM_LAUNCH_CLUSTER=off")));
}

class MountedKey : public ::testing::Test {
 protected:
  MountedKey() {
    fs::remove_all(home_);
    fs::create_directories(home_ / ".ssh");
  }
  ~MountedKey() override { fs::remove_all(home_); }

  fs::path home_ =
      fs::path(::testing::TempDir()) /
      (std::string("home-") + ::testing::UnitTest::GetInstance()->current_test_info()->name());
  smp::Variables environment_{{"HOME", home_.string()}};
};

TEST_F(MountedKey, IsFoundInTheHomeFolder) {
  // As Kubernetes mounts a Secret: by links, so that all files change at once.
  fs::create_directories(home_ / ".ssh/..data");
  std::ofstream(home_ / ".ssh/..data/id_rsa") << "key";
  fs::create_symlink("..data/id_rsa", home_ / ".ssh/id_rsa");

  EXPECT_EQ(find_mounted_key("", environment_), home_ / ".ssh/id_rsa");
  EXPECT_EQ(find_mounted_key((home_ / ".ssh/..data/id_rsa").string(), environment_),
            home_ / ".ssh/..data/id_rsa");
}

TEST_F(MountedKey, ThatIsMissingIsOneSentence) {
  EXPECT_THAT(refusal([&] { find_mounted_key("", environment_); }),
              AllOf(HasSubstr(".ssh: there is no key pair"), HasSubstr("sshAuthMountPath")));
  EXPECT_THAT(refusal([&] { find_mounted_key("/nowhere/key", environment_); }),
              HasSubstr("/nowhere/key: user id"));
}

TEST(JobOnACluster, HasPortsOfItsOwnOnSharedMachinesAndEndsBeforeTheKill) {
  const JobConfig one = a_job().on_cluster(a_step()).with_variable("SLURM_JOB_ID", "7");
  const JobConfig other = a_job().on_cluster(a_step()).with_variable("SLURM_JOB_ID", "8");
  const JobConfig asked = a_job()
                              .on_cluster(a_step())
                              .with_variable("SLURM_JOB_ID", "7")
                              .with_variable("SM_LAUNCH_STOP_SECONDS", "300");

  EXPECT_NE(one.options.ssh_port, 0);
  EXPECT_NE(one.options.ssh_port, other.options.ssh_port);
  EXPECT_NE(one.hosts.master_port, other.hosts.master_port);
  EXPECT_EQ(one.options.stop_after, std::chrono::seconds(25));
  EXPECT_EQ(asked.options.stop_after, std::chrono::seconds(300));
  EXPECT_EQ(JobConfig(a_job()).hosts.master_port, "7777");
  EXPECT_EQ(JobConfig(a_job()).options.ssh_port, 0);
}

TEST(JobOnACluster, RunsWhatTheEnginesKindOfJobIsFor) {
  ClusterJob launcher = a_step();
  launcher.cluster = Cluster::kHostfile;
  launcher.host_number.reset();
  launcher.tasks = {4, 4};
  ClusterJob torch = a_step();
  torch.cluster = Cluster::kTorch;
  torch.tasks = {2, 2};

  const JobConfig mpi = a_job().on_cluster(launcher);
  const JobConfig pods = a_job().on_cluster(torch).with_variable("PET_MASTER_PORT", "29400");

  EXPECT_TRUE(mpi.distribution.mpi);
  EXPECT_EQ(mpi.distribution.processes_per_host, 4);
  EXPECT_TRUE(mpi.launches_from_outside());
  EXPECT_TRUE(mpi.is_master());
  EXPECT_TRUE(pods.distribution.torch_distributed);
  EXPECT_EQ(pods.distribution.processes_per_host, 2);
  EXPECT_EQ(pods.hosts.master_port, "29400");
  EXPECT_FALSE(
      JobConfig(a_job().on_cluster(a_step()).with_variable("SLURM_JOB_ID", "7")).distribution.mpi);
}

}  // namespace
}  // namespace entrypoint
