// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/runners/rank_exec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

TEST(SleepingTransport, IsLeftOutOfOurOwnChoice) {
  std::vector<std::string> environment = {"OMPI_MCA_btl=^openib", "OMPI_MCA_pml=ob1"};

  leave_out_sleeping_transport(environment);

  EXPECT_THAT(environment, ElementsAre("OMPI_MCA_btl=^openib,ofi", "OMPI_MCA_pml=ob1"));
}

TEST(SleepingTransport, StaysWhereTheUserChose) {
  std::vector<std::string> environment = {"OMPI_MCA_btl=self,ofi"};

  leave_out_sleeping_transport(environment);

  EXPECT_THAT(environment, ElementsAre("OMPI_MCA_btl=self,ofi"));
}

TEST(SleepingTransport, IsNotNamedOutsideOfMpirun) {
  std::vector<std::string> environment = {"PATH=/bin"};

  leave_out_sleeping_transport(environment);

  EXPECT_THAT(environment, ElementsAre("PATH=/bin"));
}

TEST(RankVariables, AreOpenMpisUnderTorchsNames) {
  std::vector<std::string> environment = {
      "OMPI_COMM_WORLD_RANK=5",       "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=1",
      "OMPI_COMM_WORLD_LOCAL_SIZE=4", "RANK=of-somebody-else",  "PATH=/bin"};

  set_rank_variables(environment);

  EXPECT_THAT(environment,
              UnorderedElementsAre("OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=8",
                                   "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=4",
                                   "PATH=/bin", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1",
                                   "LOCAL_WORLD_SIZE=4"));
}

TEST(RankVariables, StayAsTheyAreOutsideOfMpirun) {
  std::vector<std::string> environment = {"RANK=3"};

  set_rank_variables(environment);

  EXPECT_THAT(environment, UnorderedElementsAre("RANK=3"));
}

TEST(OwnHost, IsTheOneThatIsCalledAsThisMachine) {
  const std::string hosts =
      "SM_HOSTS=[\"digits-worker-0.digits.svc\",\"digits-worker-1.digits.svc\"]";
  std::vector<std::string> environment = {hosts};
  std::vector<std::string> known = {hosts, "SM_CURRENT_HOST=here"};
  std::vector<std::string> elsewhere = {hosts};

  set_own_host(environment, "digits-worker-1");
  set_own_host(known, "digits-worker-1");
  set_own_host(elsewhere, "digits-launcher");

  EXPECT_THAT(environment, UnorderedElementsAre(hosts, "SM_CURRENT_HOST=digits-worker-1.digits.svc",
                                                "CURRENT_HOST=digits-worker-1.digits.svc"));
  EXPECT_THAT(known, UnorderedElementsAre(hosts, "SM_CURRENT_HOST=here"));
  EXPECT_THAT(elsewhere, UnorderedElementsAre(hosts));
}

}  // namespace
}  // namespace entrypoint
