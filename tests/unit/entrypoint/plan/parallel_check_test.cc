// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/parallel_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

LaunchPlan torchrun_plan(const char* parameters) {
  return make_launch_plan(a_job().with_torchrun(8).with("mp_parameters", parameters), a_machine());
}

TEST(ParallelCheck, TorchrunPassesTheSecondGenerationsSettingsOn) {
  const JobConfig job = a_job().with_torchrun(8).with(
      "mp_parameters", R"({"tensor_parallel_degree": 8, "hybrid_shard_degree": 2})");

  const ParallelSettings settings = read_parallel_settings(job, Runner::kTorchrun);

  EXPECT_FALSE(settings.config.has_value());
  EXPECT_THAT(settings.notes, ElementsAre(HasSubstr("second generation and passed on unchecked")));
  const LaunchPlan plan = make_launch_plan(job, a_machine());
  EXPECT_EQ(plan.outline.ranks.places.size(), 8);
  EXPECT_FALSE(plan.outline.ranks.places.front().grid.has_value());
  EXPECT_THAT(plan.command.user_command.back(), "hybrid_shard_degree=2,tensor_parallel_degree=8");
}

TEST(ParallelCheck, AKeyOfNeitherGenerationIsNamed) {
  EXPECT_THAT(torchrun_plan(R"({"hybrid_shard_degre": 2})").notes,
              ::testing::Contains(HasSubstr("it does not know hybrid_shard_degre")));
}

TEST(ParallelCheck, TheFirstGenerationUnderTorchrunIsCheckedAsUnderMpi) {
  const LaunchPlan plan = torchrun_plan(R"({"partitions": 2, "ddp": true})");
  ASSERT_EQ(plan.outline.ranks.places.size(), 8);
  EXPECT_EQ(plan.outline.ranks.places[1].grid->pp, 1);
  EXPECT_THAT(plan.warnings, IsEmpty());

  EXPECT_THAT(message_of([] { torchrun_plan(R"({"partitions": 3, "ddp": true})"); }),
              HasSubstr("3"));
  EXPECT_THAT(
      message_of([] { torchrun_plan(R"({"partitions": 2, "context_parallel_degree": 2})"); }),
      HasSubstr("context_parallel_degree"));
}

TEST(ParallelCheck, TheSecondGenerationElsewhereIsToldWhatItNeeds) {
  const JobConfig job =
      a_job().with_mpi(8).with("mp_parameters", R"({"expert_parallel_degree": 2})");

  EXPECT_THAT(message_of([&] { make_launch_plan(job, a_machine()); }),
              HasSubstr("the MPI runner was chosen; set sagemaker_torch_distributed_enabled"));
}

}  // namespace
}  // namespace entrypoint
