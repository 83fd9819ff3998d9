// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/child_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/process/launch_folder.h"

namespace entrypoint {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::UnorderedElementsAre;

ProgramEnvironment a_plan() {
  ProgramEnvironment plan;
  plan.variables = {{"SM_HOSTS", "[]"}, {"SM_CURRENT_HOST", "algo-2"}};
  plan.host_variables = {{"SM_CURRENT_HOST", "algo-2"}, {"OMP_NUM_THREADS", "4"}};
  return plan;
}

TEST(PlannedEnvironment, PutsThePlanOverWhatIsInherited) {
  ProgramEnvironment plan = a_plan();
  plan.unset = {"OLD"};

  EXPECT_THAT(planned_environment(plan, {"OLD=1", "SM_HOSTS=stale", "KEEP=a=b"}),
              UnorderedElementsAre("KEEP=a=b", "SM_HOSTS=[]", "SM_CURRENT_HOST=algo-2",
                                   "OMP_NUM_THREADS=4", "PYTHONUNBUFFERED=1"));
}

TEST(PlannedEnvironment, LeavesBufferingToAUserWhoSetIt) {
  EXPECT_THAT(planned_environment({}, {"PYTHONUNBUFFERED=0"}), ElementsAre("PYTHONUNBUFFERED=0"));
}

class RankEnvironment : public testing::Test {
 protected:
  void SetUp() override {
    const ProgramEnvironment plan = a_plan();
    save_rank_environment(folder_.path(), plan,
                          planned_environment(plan, {"HOME=/root", "MINE=multi\nline", "PATH=/a"}));
  }

  LaunchFolder folder_;
};

TEST_F(RankEnvironment, IsRebuiltFromWhatThisHostSaved) {
  // The variables of an ssh session and mpirun's -x.
  const auto environment =
      rank_environment(folder_.path(), {"HOME=/nonexistent", "SSH_CONNECTION=x", "PATH=/b",
                                        "OMPI_COMM_WORLD_RANK=3", "SM_CURRENT_HOST=algo-1"});

  EXPECT_THAT(environment, UnorderedElementsAre("HOME=/root", "MINE=multi\nline", "PATH=/b",
                                                "OMPI_COMM_WORLD_RANK=3", "SM_HOSTS=[]",
                                                "SM_CURRENT_HOST=algo-2", "OMP_NUM_THREADS=4",
                                                "PYTHONUNBUFFERED=1"));
}

TEST_F(RankEnvironment, LeavesTheUsersNumberOfThreads) {
  EXPECT_THAT(rank_environment(folder_.path(), {"OMP_NUM_THREADS=7"}),
              Contains("OMP_NUM_THREADS=7"));
}

TEST_F(RankEnvironment, StaysAsItIsWithoutAFolder) {
  EXPECT_THAT(rank_environment({}, {"A=1"}), ElementsAre("A=1"));
  EXPECT_THAT(rank_environment("/no/such/folder", {"A=1"}), ElementsAre("A=1"));
}

TEST(LostHosts, AreInNoVariableOfAHost) {
  const std::string before = R"(["algo-1", "algo-2", "algo-3"])";
  std::vector<std::string> environment = {
      R"(SM_TRAINING_ENV={"hosts":["algo-1","algo-2","algo-3"],"hyperparameters":{"hosts":["algo-1"]},)"
      R"("resource_config":{"instance_groups":[{"hosts":["algo-1"]},{"hosts":["algo-2"]}]}})",
      R"(SM_RESOURCE_CONFIG={"hosts":["algo-3","algo-1"]})",
      R"(SM_CURRENT_INSTANCE_GROUP_HOSTS=["algo-1"])",
      "SM_CURRENT_HOST=algo-3",
      "SM_CURRENT_HOST_RANK=2",
      "OTHER=algo-1"};
  std::vector<std::string> same = environment;

  leave_out_lost_hosts(environment, before, R"(["algo-2","algo-3"])");
  leave_out_lost_hosts(same, before, R"(["algo-1","algo-2","algo-3"])");

  EXPECT_THAT(
      environment,
      UnorderedElementsAre(
          R"(SM_TRAINING_ENV={"hosts":["algo-2","algo-3"],"hyperparameters":{"hosts":["algo-1"]},)"
          R"("resource_config":{"instance_groups":[{"hosts":[]},{"hosts":["algo-2"]}]}})",
          R"(SM_RESOURCE_CONFIG={"hosts":["algo-3"]})", "SM_CURRENT_INSTANCE_GROUP_HOSTS=[]",
          "SM_CURRENT_HOST=algo-3", "SM_CURRENT_HOST_RANK=1", "OTHER=algo-1"));
  EXPECT_THAT(same, Contains("SM_CURRENT_HOST_RANK=2"));
}

}  // namespace
}  // namespace entrypoint
