// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/launch_plan.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/entrypoint/plan/launch_plans.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST(StartCheck, TheCheckIsStartedAsTheScriptIs) {
  const Words check{"-m", "smdistributed.check", "--outliers", "report"};
  const JobBuilder job =
      a_job().with_hosts({"algo-1", "algo-2"}).with_variable("SM_LAUNCH_CHECK", "1");

  const LaunchPlan mpi = plan_of(JobBuilder(job).with_mpi(2));
  ASSERT_TRUE(mpi.check);
  EXPECT_TRUE(has_sequence(mpi.check->argv, {"--host", "algo-1:2,algo-2:2", "-np", "4"}));
  EXPECT_TRUE(has_sequence(mpi.check->argv, check));
  EXPECT_FALSE(mpi.check->fails_job);
  EXPECT_FALSE(plan_of(JobBuilder(job).with_mpi(2).on_host("algo-2")).check);

  const LaunchPlan torchrun = plan_of(JobBuilder(job).with_torchrun(2).on_host("algo-2"));
  ASSERT_TRUE(torchrun.check);
  EXPECT_TRUE(has_sequence(torchrun.check->argv, {"--master_port", "7778", "--node_rank", "1"}));
  EXPECT_TRUE(has_sequence(torchrun.command.argv, {"--master_port", "7777", "--node_rank", "1"}));
  EXPECT_TRUE(has_sequence(torchrun.check->argv, check));

  const LaunchPlan process = plan_of(JobBuilder(job).with_variable("SM_LAUNCH_CHECK", "strict"));
  ASSERT_TRUE(process.check);
  EXPECT_THAT(process.check->argv,
              ElementsAre("/usr/bin/python3", "-m", "smdistributed.check", "--outliers", "fail"));
  EXPECT_TRUE(process.check->fails_job);
  EXPECT_FALSE(plan_of(a_job()).check);
}

TEST(StartCheck, AnotherFrameworksModuleIsCheckedAsAPlainProcessIs) {
  const LaunchPlan plan = plan_of(
      a_job()
          .with_variable("SAGEMAKER_TRAINING_MODULE", "sagemaker_mxnet_container.training:main")
          .with_variable("SM_LAUNCH_CHECK", "1"));

  ASSERT_TRUE(plan.check);
  EXPECT_THAT(plan.check->argv,
              ElementsAre("/usr/bin/python3", "-m", "smdistributed.check", "--outliers", "report"));
}

TEST(StartCheck, AJobWithoutTorchIsNotChecked) {
  HostFacts facts = a_machine();
  facts.torch_version.clear();

  const LaunchPlan plan = plan_of(a_job().with_variable("SM_LAUNCH_CHECK", "1"), facts);

  EXPECT_FALSE(plan.check);
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("SM_LAUNCH_CHECK has no effect")));
}

TEST(StartCheck, TheCheckAloneTakesTheScriptsPlace) {
  CodeFolder code;
  code.entries = {"requirements.txt", "setup.py"};
  const JobConfig job = make_check_job(a_job().with_mpi(2).with("lr", "0.1").with_code(code));

  const LaunchPlan plan = plan_of(job);

  EXPECT_THAT(plan.entry.install, IsEmpty());
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-m", "smdistributed.check", "--outliers", "fail"}));
  EXPECT_THAT(plan.command.argv, Not(Contains("--lr")));
}

}  // namespace
}  // namespace entrypoint
