// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using Words = std::vector<std::string>;

const Secrets kByName;

std::string masked_word(std::string word) { return kByName.mask(Words{std::move(word)})[0]; }

TEST(Secrets, AreMaskedInCommands) {
  EXPECT_THAT(kByName.mask(Words{"python3", "t.py", "--api-key", "abc", "--lr", "1", "--token=x"}),
              ElementsAre("python3", "t.py", "--api-key", "******", "--lr", "1", "--token=******"));
  EXPECT_THAT(kByName.mask(Words{"mpirun", "-x", "API_KEY=1", "-x", "AWS_SESSION_TOKEN", "a"}),
              ElementsAre("mpirun", "-x", "API_KEY=******", "-x", "AWS_SESSION_TOKEN", "a"));
  EXPECT_THAT(kByName.mask(Words{"/bin/sh", "-c", "TOKEN=x ./run.sh --password 'a b' --lr 1"}),
              ElementsAre("/bin/sh", "-c", "'TOKEN=******' ./run.sh --password '******' --lr 1"));
}

TEST(Secrets, AreMaskedInPairs) {
  EXPECT_EQ(masked_word("lr=1,password=x,b=2"), "lr=1,password=******,b=2");
  EXPECT_EQ(masked_word("password=abc,REST"), "password=******");
  EXPECT_EQ(masked_word("password=abc, REST, b=2"), "password=******, b=2");
  EXPECT_EQ(masked_word("key=YQ==,lr=1"), "key=******,lr=1");
  EXPECT_EQ(masked_word("https://h/?sv=1&token=abc"), "https://h/?sv=1&token=******");
  EXPECT_EQ(masked_word("names=a,b"), "names=a,b");
}

TEST(Secrets, AreMaskedInOverrides) {
  EXPECT_EQ(masked_word("db.password=a,b,c"), "db.password=******");
  EXPECT_EQ(masked_word("+db.password=a b"), "+db.password=******");
  EXPECT_EQ(masked_word(R"(hub={"token":"x, y","user":"me"})"),
            R"(hub={"token":"******","user":"me"})");
}

TEST(Secrets, AreMaskedInACommandThatIsOneText) {
  EXPECT_EQ(masked_word("-x API_KEY=abc,REST --mca a b -x LR=1"),
            "-x 'API_KEY=******' --mca a b -x LR=1");
  EXPECT_EQ(masked_word("the user's  prose"), "the user's  prose");
  EXPECT_EQ(masked_word("the user's password=abc is"), "the user's password=******");
}

TEST(Secrets, AreMaskedInsideJson) {
  const std::vector<Variable> variables{
      {"SM_HPS", R"({"hf":{"token":"x"},"lr":1})"},
      {"SM_USER_ARGS", R"(["--password","x","--lr","1"])"},
      {"SM_USER_ARGS", R"(["api_key=x,REST","lr=1"])"},
      {"SM_FRAMEWORK_PARAMS", R"({"sagemaker_mpi_custom_mpi_options":"-x API_KEY=x,REST -v"})"},
      {"SM_HP_PASSWORD", "x"},
      {"SM_HOSTS", R"(["algo-1"])"},
      {"SM_EMPTY", "[]"},
  };

  const auto masked = kByName.mask(variables);

  EXPECT_EQ(masked[0].value, R"({"hf":{"token":"******"},"lr":1})");
  EXPECT_EQ(masked[1].value, R"(["--password","******","--lr","1"])");
  EXPECT_EQ(masked[2].value, R"(["api_key=******","lr=1"])");
  EXPECT_EQ(masked[3].value, R"({"sagemaker_mpi_custom_mpi_options":"-x 'API_KEY=******' -v"})");
  EXPECT_EQ(masked[4].value, "******");
  EXPECT_EQ(masked[5].value, R"(["algo-1"])");
  EXPECT_EQ(masked[6].value, "[]");
}

TEST(Secrets, ThatANameTellsAreFoundByValueEverywhere) {
  const opt_ml::Value parameters = opt_ml::parse_json(R"({
      "api_key": "mark-1", "hub": {"auth": {"token": "mark-2"}}, "credentials": ["mark-3", 7],
      "db": "postgres://u:mark-4@h/db", "args": "--password mark-5 --lr 1",
      "sagemaker_mpi_custom_mpi_options": "-x API_KEY=mark-6,REST",
      "licence": "mark-7", "private": "{\"inner\": \"mark-8\"}", "url": "h?token=mark-9&a=b",
      "sagemaker_submit_directory": "https://mark-10@h/code.tar.gz", "label_key": "caption"})");
  const smp::Variables environment{{"SM_LAUNCH_SECRETS", "licence"},
                                   {"WANDB_API_KEY", "mark-11"},
                                   {"SMP_X", R"({"cookie":"mark-12"})"},
                                   {"PWD", "/opt/ml/code"}};
  const Secrets secrets(environment, opt_ml::split_hyperparameters(parameters));

  for (int i = 1; i <= 12; ++i) {
    EXPECT_EQ(secrets.mask("says mark-" + std::to_string(i) + "."), "says ******.") << i;
  }
  const std::string other = "a caption in /opt/ml/code of 7";
  EXPECT_EQ(secrets.mask(other), other);
  EXPECT_EQ(opt_ml::to_json(secrets.mask(opt_ml::parse_json(R"({"a":["b mark-1"],"token":1})"))),
            R"({"a":["b ******"],"token":"******"})");
}

}  // namespace
}  // namespace entrypoint
