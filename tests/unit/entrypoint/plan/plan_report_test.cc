// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "tests/unit/entrypoint/job_builder.h"

namespace entrypoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

LaunchPlan a_plan() {
  return make_launch_plan(a_job()
                              .with_hosts({"algo-1", "algo-2"})
                              .with_mpi(2)
                              .with("mp_parameters", R"({"partitions": 2, "ddp": true})")
                              .with("api_key", "deadbeef")
                              .with("name", "a b"),
                          a_machine());
}

TEST(PlanReport, TextHasRanksAndAPastableCommand) {
  const std::string text = plan_text(a_plan(), {});

  EXPECT_THAT(text, HasSubstr("Runner:     mpi (sagemaker_mpi_enabled is true: MPI)"));
  EXPECT_THAT(text,
              HasSubstr("   rank  local   pp   tp   dp  rdp  host\n      0      0    0    0    0"));
  EXPECT_THAT(text, HasSubstr("--name 'a b'"));
  EXPECT_THAT(text, HasSubstr("  SM_HP_NAME='a b'\n"));
}

TEST(PlanReport, NoFormShowsASecret) {
  EXPECT_THAT(plan_text(a_plan(), {}), Not(HasSubstr("deadbeef")));
  EXPECT_THAT(plan_json(a_plan(), {}), Not(HasSubstr("deadbeef")));
}

TEST(PlanReport, JsonIsOneObject) {
  const opt_ml::Value json = opt_ml::parse_json(plan_json(a_plan(), {}));

  EXPECT_EQ(*json.find("runner"), opt_ml::Value("mpi"));
  EXPECT_EQ(*json.find("role"), opt_ml::Value("master"));
  EXPECT_EQ(*json.find("total_processes"), opt_ml::Value(4));
  EXPECT_EQ(json.find("ranks")->list()->size(), 4);
  EXPECT_EQ(
      opt_ml::to_json(json.find("ranks")->list()->at(3)),
      R"({"dp_rank":1,"host":"algo-2","local_rank":1,"pp_rank":1,"rank":3,"rdp_rank":1,"tp_rank":0})");
  EXPECT_EQ(*json.find("environment")->find("SM_CURRENT_HOST"), opt_ml::Value("algo-1"));
}

TEST(PlanReport, GroupsOfV2AreByHost) {
  const LaunchPlan plan = make_launch_plan(
      a_job()
          .with_hosts({"algo-1", "algo-2"})
          .with_torchrun(4)
          .with("mp_parameters", R"({"tensor_parallel_degree": 2, "hybrid_shard_degree": 2})"),
      a_machine());

  EXPECT_THAT(plan_text(plan, {}), HasSubstr("   rank  local   tp  shard  rep  host\n"
                                             "      0      0    0      0    0  algo-1\n"));
  EXPECT_THAT(plan_text(plan, {}),
              HasSubstr("Groups of ranks, by their hosts:\n"
                        "   tensor of 2  algo-1:  0 1 | 2 3\n"
                        "   tensor of 2  algo-2:  4 5 | 6 7\n"
                        "    shard of 2  algo-1:  0 2 | 1 3\n"
                        "    shard of 2  algo-2:  4 6 | 5 7\n"
                        "  replica of 2  algo-1, algo-2:  0 4 | 1 5 | 2 6 | 3 7\n"));
  EXPECT_EQ(opt_ml::to_json(*opt_ml::parse_json(plan_json(plan, {})).find("groups")),
            R"({"replica":[[0,4],[1,5],[2,6],[3,7]],"shard":[[0,2],[1,3],[4,6],[5,7]],)"
            R"("tensor":[[0,1],[2,3],[4,5],[6,7]]})");
}

TEST(PlanReport, AWorkerShowsWhatItsRanksRun) {
  const LaunchPlan plan = make_launch_plan(
      a_job().with_hosts({"algo-1", "algo-2"}).on_host("algo-2").with_mpi(2), a_machine());

  EXPECT_THAT(plan_text(plan, {}),
              HasSubstr("none: this host serves the ranks that algo-1 starts on it"));
}

}  // namespace
}  // namespace entrypoint
