// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/cluster/launch_ranks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/refusal.h"

namespace smp::cluster {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "5"},
                         {"OMPI_COMM_WORLD_SIZE", "8"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Variables kSlurm{{"SLURM_PROCID", "2"},
                       {"SLURM_STEP_NUM_TASKS", "4"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "1"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2,2"},
                       {"SLURM_JOB_ID", "7"},
                       {"SLURM_STEP_ID", "3"},
                       {"SLURM_STEP_NODELIST", "n[5-6]"},
                       {"SLURM_NTASKS_PER_NODE", "9"},
                       {"SLURM_JOB_NODELIST", "n[1-9]"}};
const Variables kPmi{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kTorchrun{
    {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}};

Variables together(std::initializer_list<Variables> parts) {
  Variables all;
  for (const Variables& part : parts) all.insert(part.begin(), part.end());
  return all;
}

TEST(LaunchRanks, OfEachLauncher) {
  EXPECT_EQ(launch_ranks(kOpenMpi), (LaunchRanks{5, 8, 1, 4, "Open MPI"}));
  EXPECT_EQ(launch_ranks(kPmi), (LaunchRanks{1, 2, 1, 2, "PMI"}));
  EXPECT_EQ(launch_ranks(kSlurm), (LaunchRanks{2, 4, 0, 2, "Slurm"}));
  EXPECT_EQ(launch_ranks(kTorchrun), (LaunchRanks{3, 4, 1, 2, "torchrun"}));
  EXPECT_EQ(launch_ranks({}), (LaunchRanks{0, 1, 0, 1, "no launcher"}));
}

TEST(LaunchRanks, OfAWorldThatIsThere) {
  EXPECT_EQ(ranks_in_world(1, 2, kOpenMpi), (LaunchRanks{1, 2, 1, 4, "torch.distributed"}));
  EXPECT_EQ(ranks_in_world(1, 2, {}), (LaunchRanks{1, 2, {}, {}, "torch.distributed"}));
}

TEST(LaunchRanks, TheOrderIsOpenMpiPmiSlurmTorchrun) {
  EXPECT_EQ(launch_ranks(together({kTorchrun, kSlurm, kPmi, kOpenMpi})).source, "Open MPI");
  EXPECT_EQ(launch_ranks(together({kTorchrun, kSlurm, kPmi})).source, "PMI");
  EXPECT_EQ(launch_ranks(together({kTorchrun, kSlurm})).source, "Slurm");
}

TEST(LaunchRanks, AProcessOfTorchrunBelievesItInsideSlurm) {
  EXPECT_EQ(launch_ranks(together({kSlurm, kTorchrun, {{"TORCHELASTIC_RUN_ID", "x"}}})).source,
            "torchrun");
}

TEST(LaunchRanks, ABatchScriptOfSlurmIsOneProcess) {
  const LaunchRanks ranks =
      launch_ranks({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "7"}});

  EXPECT_EQ(ranks.size, 1);
  EXPECT_FALSE(ranks.launched());
}

TEST(LaunchRanks, NumbersThatDoNotFitAreRefused) {
  for (const auto& [name, text] :
       {std::pair{"RANK", "4"}, {"RANK", "-1"}, {"WORLD_SIZE", "many"}}) {
    Variables variables = kTorchrun;
    variables[name] = text;
    EXPECT_THAT(refusal([&] { launch_ranks(variables); }), HasSubstr("torchrun"));
  }
}

TEST(LaunchRanks, OfAStepWhosePmixOpenMpiCannotTalkToAreRefused) {
  const Variables newer = {{"PMIX_NAMESPACE", "slurm.pmix.7.3"}, {"PMIX_VERSION", "7.1.0"}};

  EXPECT_THAT(refusal([&] { launch_ranks(together({kSlurm, newer})); }), HasSubstr("PMIx 7.1.0"));
  // Ranks of mpirun inside a step have mpirun's own server.
  EXPECT_EQ(launch_ranks(together({kOpenMpi, kSlurm, newer})).source, "Open MPI");
}

TEST(LaunchRanks, OfAStepThatDoesNotSayHowManyANodeHas) {
  Variables variables = kSlurm;
  variables.erase("SLURM_STEP_TASKS_PER_NODE");

  EXPECT_EQ(launch_ranks(variables), (LaunchRanks{2, 4, 0, std::nullopt, "Slurm"}));
  EXPECT_FALSE(missing_rank_variables(variables).contains("LOCAL_WORLD_SIZE"));
}

TEST(LaunchRanks, ScriptsOfAStepFindItsFirstNode) {
  const Variables missing = missing_rank_variables(kSlurm);

  EXPECT_EQ(missing.at("RANK"), "2");
  EXPECT_EQ(missing.at("LOCAL_WORLD_SIZE"), "2");
  EXPECT_EQ(missing.at("MASTER_ADDR"), "n5");
  EXPECT_EQ(missing.at("MASTER_PORT"), std::to_string(*derived_port(kSlurm, 0)));
}

TEST(LaunchRanks, StepsOfAJobHavePortsOfTheirOwn) {
  Variables other = kSlurm;
  other["SLURM_STEP_ID"] = "4";

  EXPECT_NE(derived_port(kSlurm, 0), derived_port(other, 0));
}

TEST(LaunchRanks, VariablesOfScriptsAreThoseOfOpenMpi) {
  EXPECT_THAT(rank_variables(kOpenMpi),
              UnorderedElementsAre(Pair("RANK", "5"), Pair("WORLD_SIZE", "8"),
                                   Pair("LOCAL_RANK", "1"), Pair("LOCAL_WORLD_SIZE", "4")));
  EXPECT_THAT(rank_variables({}), IsEmpty());
}

TEST(LaunchRanks, WhatIsSetStays) {
  Variables variables{{"OMPI_COMM_WORLD_RANK", "1"},
                      {"OMPI_COMM_WORLD_SIZE", "2"},
                      {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                      {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                      {"RANK", "1"}};

  EXPECT_THAT(
      missing_rank_variables(variables),
      UnorderedElementsAre(Pair("WORLD_SIZE", "2"), Pair("LOCAL_RANK", "1"),
                           Pair("LOCAL_WORLD_SIZE", "2"), Pair("MASTER_ADDR", "127.0.0.1")));
  variables["OMPI_MCA_ess_base_jobid"] = "7";
  EXPECT_TRUE(missing_rank_variables(variables).contains("MASTER_PORT"));
  EXPECT_THAT(missing_rank_variables(kTorchrun), IsEmpty());
}

}  // namespace
}  // namespace smp::cluster
