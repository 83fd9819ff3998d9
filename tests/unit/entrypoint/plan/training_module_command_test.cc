// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/environment.h"
#include "entrypoint/plan/planned_command.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

JobBuilder a_module_job(const std::string& module) {
  return a_job().with_variable("SAGEMAKER_TRAINING_MODULE", module);
}
std::string module_error(const std::string& module) {
  return message_of([&] { make_training_module_command(module, "/usr/bin/python3"); });
}

TEST(ModuleCommand, TheNameIsAnArgumentAndNeverCode) {
  const std::string hostile = "os');import os#:system";

  const auto words = make_training_module_command(hostile, "/usr/bin/python3");

  ASSERT_EQ(words.size(), 4);
  EXPECT_EQ(words[1], "-c");
  EXPECT_EQ(words[2], make_training_module_command("a:b", "/usr/bin/python3")[2]);
  EXPECT_EQ(words[3], hostile);
}

TEST(ModuleCommand, ANameOfAnotherFormIsRefused) {
  for (const char* name : {"module", ":function", "module:", "a:b:c"}) {
    EXPECT_THAT(module_error(name), HasSubstr("expected module:function")) << name;
  }
  EXPECT_EQ(module_error("package.module:main"), "");
  EXPECT_THAT(message_of([] { make_training_module_command("a:b", ""); }),
              HasSubstr("needs Python"));
}

TEST(ModuleCommand, NoEntryPointIsNeededForTheModuleLooksForItself) {
  JobBuilder job = a_module_job("sagemaker_xgboost_container.training:main");
  job = job.with("sagemaker_program", "no-such.py").with_code({});

  const LaunchPlan plan = make_launch_plan(job, a_machine());

  EXPECT_EQ(plan.outline.runner.kind, Runner::kTrainingModule);
  EXPECT_EQ(plan.command.argv.back(), "sagemaker_xgboost_container.training:main");
  EXPECT_THAT(plan.entry.install, IsEmpty());
  EXPECT_EQ(*find_variable(plan.outline.environment.variables, "SM_FRAMEWORK_MODULE"),
            "sagemaker_xgboost_container.training:main");
}

TEST(ModuleCommand, SettingsOfALibraryOfOursAreNotItsBusiness) {
  EXPECT_NO_THROW(make_launch_plan(
      a_module_job("mine:main").with("mp_parameters", R"({"anything": 1})"), a_machine()));
}

}  // namespace
}  // namespace entrypoint
