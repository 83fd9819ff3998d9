// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/secrets.h"
#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "tests/unit/entrypoint/job_builder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Words = std::vector<std::string>;

TEST(Secrets, NamesAreReadByWord) {
  for (const char* name :
       {"AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "password", "--api-key", "apiKey", "api_key",
        "APIKEY", "db.password", "SM_HP_HF-TOKEN", "private"}) {
    EXPECT_TRUE(is_secret_name(name)) << name;
  }
  for (const char* name :
       {"tokenizer", "max_tokens", "keyboard", "compass", "secretary", "lr", ""}) {
    EXPECT_FALSE(is_secret_name(name)) << name;
  }
}

TEST(Secrets, AreMaskedInCommands) {
  EXPECT_THAT(mask_secrets(Words{"python3", "t.py", "--api-key", "abc", "--lr", "1", "--token=x"}),
              ElementsAre("python3", "t.py", "--api-key", "******", "--lr", "1", "--token=******"));
  EXPECT_THAT(mask_secrets(Words{"mpirun", "-x", "API_KEY=1", "-x", "AWS_SESSION_TOKEN", "a"}),
              ElementsAre("mpirun", "-x", "API_KEY=******", "-x", "AWS_SESSION_TOKEN", "a"));
  EXPECT_THAT(mask_secrets(Words{"/bin/sh", "-c", "./run.sh --password 'a b' --lr 1"}),
              ElementsAre("/bin/sh", "-c", "./run.sh --password '******' --lr 1"));
  EXPECT_THAT(mask_secrets(Words{"--o", "lr=1,password=x,b=2"}),
              ElementsAre("--o", "lr=1,password=******,b=2"));
}

TEST(Secrets, AreMaskedInOverrides) {
  EXPECT_THAT(mask_secrets(Words{"python3", "t.py", "db.password=a,b,c", "lr=0.1", "names=a,b"}),
              ElementsAre("python3", "t.py", "db.password=******", "lr=0.1", "names=a,b"));
  EXPECT_THAT(mask_secrets(Words{R"(hub={"token":"x,y","user":"me"})"}),
              ElementsAre(R"(hub={"token":"******","user":"me"})"));
  EXPECT_EQ(
      mask_secrets(std::vector<Variable>{{"SM_USER_ARGS", R"(["api_key=x","lr=1"])"}})[0].value,
      R"(["api_key=******","lr=1"])");
}

TEST(Secrets, AreMaskedInsideJson) {
  const std::vector<Variable> variables{
      {"SM_HPS", R"({"hf":{"token":"x"},"lr":1})"},
      {"SM_USER_ARGS", R"(["--password","x","--lr","1"])"},
      {"SM_HP_PASSWORD", "x"},
      {"SM_HOSTS", R"(["algo-1"])"},
  };

  const auto masked = mask_secrets(variables);

  EXPECT_EQ(masked[0].value, R"({"hf":{"token":"******"},"lr":1})");
  EXPECT_EQ(masked[1].value, R"(["--password","******","--lr","1"])");
  EXPECT_EQ(masked[2].value, "******");
  EXPECT_EQ(masked[3].value, R"(["algo-1"])");
}

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
  const std::string text = plan_text(a_plan());

  EXPECT_THAT(text, HasSubstr("Runner:     mpi (sagemaker_mpi_enabled is true: MPI)"));
  EXPECT_THAT(text,
              HasSubstr("   rank  local   pp   tp   dp  rdp  host\n      0      0    0    0    0"));
  EXPECT_THAT(text, HasSubstr("--name 'a b'"));
  EXPECT_THAT(text, HasSubstr("  SM_HP_NAME='a b'\n"));
}

TEST(PlanReport, NoFormShowsASecret) {
  EXPECT_THAT(plan_text(a_plan()), Not(HasSubstr("deadbeef")));
  EXPECT_THAT(plan_json(a_plan()), Not(HasSubstr("deadbeef")));
}

TEST(PlanReport, JsonIsOneObject) {
  const opt_ml::Value json = opt_ml::parse_json(plan_json(a_plan()));

  EXPECT_EQ(*json.find("runner"), opt_ml::Value("mpi"));
  EXPECT_EQ(*json.find("role"), opt_ml::Value("master"));
  EXPECT_EQ(*json.find("total_processes"), opt_ml::Value(4));
  EXPECT_EQ(json.find("ranks")->list()->size(), 4);
  EXPECT_EQ(
      opt_ml::to_json(json.find("ranks")->list()->at(3)),
      R"({"dp_rank":1,"host":"algo-2","local_rank":1,"pp_rank":1,"rank":3,"rdp_rank":1,"tp_rank":0})");
  EXPECT_EQ(*json.find("environment")->find("SM_CURRENT_HOST"), opt_ml::Value("algo-1"));
}

TEST(PlanReport, AWorkerShowsWhatItsRanksRun) {
  const LaunchPlan plan = make_launch_plan(
      a_job().with_hosts({"algo-1", "algo-2"}).on_host("algo-2").with_mpi(2), a_machine());

  EXPECT_THAT(plan_text(plan),
              HasSubstr("none: this host serves the ranks that algo-1 starts on it"));
}

}  // namespace
}  // namespace entrypoint
