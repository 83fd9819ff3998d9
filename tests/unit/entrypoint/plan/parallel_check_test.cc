// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/parallel_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

using Axes = std::vector<RankPlace::Coordinate>;
using Groups = std::vector<std::vector<int>>;

LaunchPlan torchrun_plan(const char* parameters, std::vector<std::string> hosts = {"algo-1"},
                         int per_host = 8) {
  return make_launch_plan(a_job()
                              .with_hosts(std::move(hosts))
                              .with_torchrun(per_host)
                              .with("mp_parameters", parameters),
                          a_machine());
}

std::string torchrun_error(const char* parameters) {
  return message_of([&] { torchrun_plan(parameters); });
}

TEST(ParallelCheck, SettingsOfV2AreRead) {
  const JobConfig job = a_job().with_torchrun(8).with(
      "mp_parameters", R"({"tensor_parallel_degree": "2", "hybrid_shard_degree": 2,
                           "sm_activation_offloading": "true"})");

  const ParallelSettings settings = read_parallel_settings(job, Runner::kTorchrun);

  EXPECT_FALSE(settings.v1.has_value());
  ASSERT_TRUE(settings.v2.has_value());
  EXPECT_EQ(settings.v2->tensor_parallel_degree, 2);
  EXPECT_TRUE(settings.v2->sm_activation_offloading);
  EXPECT_THAT(settings.notes, ElementsAre(HasSubstr("those of SMP v2, torch.sagemaker")));
}

TEST(ParallelCheck, RanksOfV2KnowTheirPlaces) {
  const LaunchPlan plan = torchrun_plan(
      R"({"tensor_parallel_degree": 2, "hybrid_shard_degree": 2})", {"algo-1", "algo-2"}, 4);

  const RankLayout& ranks = plan.outline.ranks;
  ASSERT_EQ(ranks.places.size(), 8);
  EXPECT_EQ(ranks.places[3].grid, (Axes{{"tp", 1}, {"shard", 1}, {"rep", 0}}));
  EXPECT_EQ(ranks.places[4].grid, (Axes{{"tp", 0}, {"shard", 0}, {"rep", 1}}));
  ASSERT_EQ(ranks.groups.size(), 3);
  EXPECT_EQ(ranks.groups[0].kind, "tensor");
  EXPECT_EQ(ranks.groups[0].groups, (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(ranks.groups[1].kind, "shard");
  EXPECT_EQ(ranks.groups[1].groups, (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}}));
  EXPECT_EQ(ranks.groups[2].kind, "replica");
  EXPECT_EQ(ranks.groups[2].groups, (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_THAT(plan.warnings, IsEmpty());
}

TEST(ParallelCheck, GroupsOfOneRankEachAreNotListed) {
  const RankLayout ranks = torchrun_plan(R"({"hybrid_shard_degree": 8})").outline.ranks;

  ASSERT_EQ(ranks.groups.size(), 1);
  EXPECT_EQ(ranks.groups[0].kind, "shard");
}

TEST(ParallelCheck, WhereTheScriptSaysHowItShardsNoGroupsAreDrawn) {
  const LaunchPlan plan = torchrun_plan(R"({"sm_activation_offloading": false})");

  EXPECT_THAT(plan.outline.ranks.places.front().grid, IsEmpty());
  EXPECT_THAT(plan.outline.ranks.groups, IsEmpty());
  EXPECT_THAT(plan.notes, Contains(HasSubstr("the script's strategy of FSDP says")));
}

TEST(ParallelCheck, ACopyOnTwoHostsThatFitsOneIsAWarning) {
  EXPECT_THAT(torchrun_plan(R"({"hybrid_shard_degree": 4})", {"algo-1", "algo-2"}, 6).warnings,
              Contains(HasSubstr("ranks 4 on algo-1, 5 on algo-1, 6 on algo-2, 7 on algo-2; "
                                 "hybrid_shard_degree, 4, does not divide the 6 ranks of a host")));
  EXPECT_THAT(torchrun_plan(R"({"hybrid_shard_degree": 12})", {"algo-1", "algo-2"}, 6).warnings,
              IsEmpty());
}

TEST(ParallelCheck, MistakesInSettingsOfV2AreNamed) {
  EXPECT_THAT(torchrun_error(R"({"hybrid_shard_degre": 2})"),
              HasSubstr("unknown key \"hybrid_shard_degre\"; did you mean hybrid_shard_degree"));
  EXPECT_THAT(torchrun_error(R"({"partitons": 2})"),
              HasSubstr("SMP v2 has no key \"partitons\"; did you mean partitions of SMP v1"));
  EXPECT_THAT(torchrun_error(R"({"allow_empty_shards": "maybe"})"),
              HasSubstr("allow_empty_shards is \"maybe\"; expected true or false"));
  EXPECT_THAT(torchrun_error(R"({"hybrid_shard_degree": 16})"),
              HasSubstr("hybrid_shard_degree is 16, which does not divide the number of ranks, 8"));
  EXPECT_THAT(torchrun_error(R"({"context_parallel_degree": 2})"),
              HasSubstr("context parallelism is not offered"));
}

TEST(ParallelCheck, KeysOfBothGenerationsDoNotGoTogether) {
  EXPECT_THAT(torchrun_error(R"({"partitions": 2, "sm_activation_offloading": true})"),
              HasSubstr("key \"partitions\": this is SMP v1: import "
                        "smdistributed.modelparallel.torch; SMP v2, torch.sagemaker, has no such"));
}

TEST(ParallelCheck, V1UnderTorchrunIsCheckedAsUnderMpi) {
  const LaunchPlan plan = torchrun_plan(R"({"partitions": 2, "ddp": true})");
  ASSERT_EQ(plan.outline.ranks.places.size(), 8);
  EXPECT_EQ(plan.outline.ranks.places[1].grid.front(), (RankPlace::Coordinate{"pp", 1}));
  EXPECT_THAT(plan.outline.ranks.groups, IsEmpty());
  EXPECT_THAT(plan.warnings, IsEmpty());

  EXPECT_THAT(torchrun_error(R"({"partitions": 3, "ddp": true})"), HasSubstr("3"));
}

TEST(ParallelCheck, KeysThatBothHaveAreReadAsTheRunnerSays) {
  const JobConfig job = a_job().with("mp_parameters", R"({"activation_loading_horizon": 3})");

  EXPECT_TRUE(read_parallel_settings(job, Runner::kTorchrun).v2.has_value());
  EXPECT_TRUE(read_parallel_settings(job, Runner::kMpi).v1.has_value());
}

TEST(ParallelCheck, V2UnderAnotherRunnerIsToldWhatItNeeds) {
  const JobConfig job =
      a_job().with_mpi(8).with("mp_parameters", R"({"expert_parallel_degree": 2})");

  EXPECT_THAT(message_of([&] { make_launch_plan(job, a_machine()); }),
              HasSubstr("the MPI runner was chosen; set sagemaker_torch_distributed_enabled"));
}

}  // namespace
}  // namespace entrypoint
