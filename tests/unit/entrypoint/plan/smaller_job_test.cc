// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/launch_plan.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/entrypoint/plan/launch_plans.h"
#include "tests/unit/refusal.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

JobBuilder three_hosts() {
  return a_job()
      .with_hosts({"algo-1", "algo-2", "algo-3"})
      .with_mpi(2)
      .with_variable("SM_LAUNCH_RESTARTS", "2")
      .with_variable("SM_LAUNCH_MIN_HOSTS", "2");
}

std::string refusal(const JobConfig& job, std::int64_t restarts = 0) {
  return smp::refusal([&] { plan_without_hosts(job, a_machine(), {"algo-2"}, restarts); });
}

TEST(SmallerJob, HasTheHostsThatAreLeft) {
  const SmallerJob smaller = plan_without_hosts(three_hosts(), a_machine(), {"algo-2"}, 1);

  EXPECT_THAT(smaller.plan.outline.runner.hosts, ElementsAre("algo-1", "algo-3"));
  EXPECT_TRUE(has_sequence(smaller.plan.command.argv, {"--host", "algo-1:2,algo-3:2", "-np", "4"}));
  EXPECT_EQ(value_of(smaller.plan, "SM_HOSTS"), R"(["algo-1","algo-3"])");
  EXPECT_EQ(value_of(smaller.plan, "SM_HOST_COUNT"), "2");
  EXPECT_THAT(value_of(smaller.plan, "SM_RESOURCE_CONFIG"), Not(HasSubstr("algo-2")));
}

TEST(SmallerJob, IsRefusedWithTheReason) {
  EXPECT_THAT(refusal(three_hosts(), 2), HasSubstr("2 of 2 restarts were made"));
  EXPECT_THAT(refusal(three_hosts().with_variable("SM_LAUNCH_MIN_HOSTS", "0")),
              HasSubstr("SM_LAUNCH_MIN_HOSTS is not set"));
  EXPECT_THAT(refusal(three_hosts().with_variable("SM_LAUNCH_MIN_HOSTS", "3")),
              HasSubstr("2 hosts are left, and SM_LAUNCH_MIN_HOSTS is 3"));
  EXPECT_THAT(refusal(three_hosts().with("mp_parameters",
                                         R"({"pipeline_parallel_degree": 3, "microbatches": 3})")),
              HasSubstr("world size 4 is not divisible by partitions 3"));
  for (const char* host : {"algo-1", "node-2"}) {  // the current one, and another spelling
    EXPECT_THAT(smp::refusal([&] { plan_without_hosts(three_hosts(), a_machine(), {host}, 0); }),
                HasSubstr(std::string(host) + " is not among the other hosts"));
  }
}

}  // namespace
}  // namespace entrypoint
