// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/rendezvous.h"

#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::cluster {
namespace {

using ::testing::HasSubstr;

const LaunchRanks kOneHost{1, 4, 1, 4, "Open MPI"};
const LaunchRanks kTwoHosts{1, 4, 1, 2, "Open MPI"};
const Variables kMaster{{"MASTER_ADDR", "algo-1"}, {"MASTER_PORT", "7777"}};
const Variables kJob{{"OMPI_MCA_ess_base_jobid", "2146566145"}};

Variables with(Variables variables, const char* name, const char* text) {
  variables[name] = text;
  return variables;
}

TEST(Rendezvous, IsWhereTheEnvironmentSays) {
  EXPECT_EQ(plan_rendezvous(kTwoHosts, {.variables = kMaster}), (Rendezvous{"algo-1", 7777}));
  EXPECT_EQ(plan_rendezvous(kTwoHosts, {.variables = kMaster, .port = 5000}),
            (Rendezvous{"algo-1", 5000}));
}

TEST(Rendezvous, TakesTheStoreOfTorchrunsAgentAsItIs) {
  const Variables variables = with(kMaster, "TORCHELASTIC_USE_AGENT_STORE", "True");

  EXPECT_EQ(plan_rendezvous(kOneHost, {.variables = variables, .port = 5000}),
            (Rendezvous{"algo-1", 7777, true, "smp/start/0"}));
  // A second start of the ranks: nothing that those before have left is theirs.
  const Variables again = with(variables, "TORCHELASTIC_RESTART_COUNT", "2");
  EXPECT_EQ(plan_rendezvous(kOneHost, {.variables = again}),
            (Rendezvous{"algo-1", 7777, true, "smp/start/2"}));
}

TEST(Rendezvous, OverMpiRank0PicksAPortAndTellsItsAddress) {
  const Variables none;
  const Variables address{{"MASTER_ADDR", "algo-1"}};

  EXPECT_EQ(plan_rendezvous(kOneHost, {.variables = none, .have_mpi = true}),
            (Rendezvous{"127.0.0.1", 0}));
  EXPECT_EQ(plan_rendezvous(kTwoHosts, {.variables = none, .have_mpi = true}), (Rendezvous{"", 0}));
  EXPECT_EQ(plan_rendezvous(kTwoHosts, {.variables = address, .have_mpi = true}),
            (Rendezvous{"algo-1", 0}));
}

TEST(Rendezvous, WithoutMpiIsOnTheFirstHost) {
  EXPECT_EQ(plan_rendezvous(kTwoHosts, {.variables = kJob, .hosts = {"algo-1", "algo-2"}}).host,
            "algo-1");
}

TEST(Rendezvous, OfAStepOfSlurmIsOnItsFirstNodeAndAsksNoMpi) {
  const LaunchRanks ranks{2, 4, 0, 2, "Slurm"};
  const Variables step{{"SLURM_JOB_ID", "7"}, {"SLURM_STEP_NODELIST", "n[5-6]"}};
  const Variables under_mpirun = with(step, "OMPI_COMM_WORLD_RANK", "2");

  EXPECT_EQ(plan_rendezvous(ranks, {.variables = step}).host, "n5");
  EXPECT_TRUE(is_told({.variables = step}));
  EXPECT_FALSE(is_told({.variables = under_mpirun}));
  EXPECT_EQ(plan_rendezvous(ranks, {.variables = under_mpirun, .have_mpi = true}).host, "");
}

TEST(Rendezvous, DerivedPortsAreEqualOnAllRanksAndDifferBetweenJobs) {
  std::set<int> ports;
  for (int job = 0; job < 50; ++job) {
    const Variables variables{{"OMPI_MCA_ess_base_jobid", std::to_string(job)}};
    ports.insert(plan_rendezvous(kOneHost, {.variables = variables}).port);
  }

  EXPECT_GT(ports.size(), 45U);
  EXPECT_GE(*ports.begin(), 10000);
  EXPECT_LT(*ports.rbegin(), 30000);
  EXPECT_EQ(plan_rendezvous(kOneHost, {.variables = kJob}),
            plan_rendezvous({0, 4, 0, 4, "Open MPI"}, {.variables = kJob}));
}

TEST(Rendezvous, OfTheNextSessionHasAnotherPort) {
  std::set<int> ports;
  for (int number = 0; number < 5; ++number) {
    ports.insert(plan_rendezvous(kOneHost, {.variables = kJob, .number = number}).port);
  }

  EXPECT_EQ(ports.size(), 5U);
}

TEST(Rendezvous, NamesWhatIsMissing) {
  for (const auto& [ranks, variables, text] :
       {std::tuple{kTwoHosts, kJob, "export MASTER_ADDR and MASTER_PORT"},
        std::tuple{kOneHost, Variables{}, "export MASTER_PORT"},
        std::tuple{kOneHost, with(kMaster, "MASTER_PORT", "http"), "expected a port"},
        std::tuple{kOneHost, with(kMaster, "MASTER_PORT", "70000"), "expected a port"}}) {
    EXPECT_THAT(refusal([&, &ranks = ranks, &variables = variables] {
                  plan_rendezvous(ranks, {.variables = variables});
                }),
                HasSubstr(text));
  }
}

}  // namespace
}  // namespace smp::cluster
