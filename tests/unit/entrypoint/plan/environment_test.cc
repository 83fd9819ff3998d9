// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "opt_ml_layout/json_document.h"
#include "opt_ml_layout/python_text.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/entrypoint/plan/launch_plans.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobEnvironment environment_of(const JobConfig& job, bool efa = false,
                              const HostFacts& facts = a_machine()) {
  const JobNetwork network{.interface_name = "eth0",
                           .gloo_interface = "eth0",
                           .master_address = "algo-1",
                           .efa = {.enabled = efa}};
  return make_environment(
      {.job = job, .facts = facts, .network = network, .user_arguments = {"--a", "b"}});
}

TEST(Environment, TheTableComesInItsOrder) {
  std::vector<std::string> names;
  for (const Variable& variable :
       environment_of(a_job().with_channel("train").with("lr", "0.1")).table) {
    names.push_back(variable.name);
  }

  EXPECT_THAT(names,
              ElementsAre("SM_HOSTS", "SM_NETWORK_INTERFACE_NAME", "SM_HPS", "SM_USER_ENTRY_POINT",
                          "SM_FRAMEWORK_PARAMS", "SM_RESOURCE_CONFIG", "SM_INPUT_DATA_CONFIG",
                          "SM_OUTPUT_DATA_DIR", "SM_CHANNELS", "SM_CURRENT_HOST",
                          "SM_CURRENT_INSTANCE_TYPE", "SM_CURRENT_INSTANCE_GROUP",
                          "SM_CURRENT_INSTANCE_GROUP_HOSTS", "SM_INSTANCE_GROUPS",
                          "SM_INSTANCE_GROUPS_DICT", "SM_DISTRIBUTION_INSTANCE_GROUPS",
                          "SM_IS_HETERO", "SM_MODULE_NAME", "SM_LOG_LEVEL", "SM_FRAMEWORK_MODULE",
                          "SM_INPUT_DIR", "SM_INPUT_CONFIG_DIR", "SM_OUTPUT_DIR", "SM_NUM_CPUS",
                          "SM_NUM_GPUS", "SM_NUM_NEURONS", "SM_MODEL_DIR", "SM_MODULE_DIR",
                          "SM_TRAINING_ENV", "SM_USER_ARGS", "SM_OUTPUT_INTERMEDIATE_DIR",
                          "SM_CHANNEL_TRAIN", "SM_HP_LR", "PYTHONPATH"));
}

TEST(Environment, RanksRecordUnlessTheUserWantsNone) {
  EXPECT_THAT(environment_of(a_job()).others,
              Contains(Variable{"SMP_RECORDS", "/opt/ml/output/data/records"}));
  for (const Variable& variable :
       environment_of(a_job().with_variable("SM_LAUNCH_REPORT", "0")).others) {
    EXPECT_NE(variable.name, "SMP_RECORDS");
  }
}

TEST(Environment, TensorBoardHasAFolderWhereItIsInstalled) {
  const auto value = [](const JobConfig& job, bool is_installed) {
    HostFacts facts = a_machine();
    facts.has_tensorboard = is_installed;
    const JobEnvironment environment = environment_of(job, false, facts);
    const std::string* found = find_variable(environment.others, "SMP_TENSORBOARD");
    return found == nullptr ? "none" : *found;
  };

  EXPECT_EQ(value(a_job(), false), "none");
  EXPECT_EQ(value(a_job(), true), "/opt/ml/output/data/tensorboard");
  EXPECT_EQ(value(a_job().with_tensorboard_folder("/opt/ml/output/tensorboard"), true),
            "/opt/ml/output/tensorboard");
  EXPECT_EQ(value(a_job().with_variable("SMP_TENSORBOARD", "/mine"), true), "/mine");
}

TEST(Environment, ValuesAreFormattedByKind) {
  const auto table = environment_of(a_job()
                                        .with_channel("val-b")
                                        .with("sagemaker_custom", "\"x\"")
                                        .with("f", "1e-5")
                                        .with("b", "true")
                                        .with("n", "null")
                                        .with("o", R"({"b": 1, "a": "ж"})")
                                        .with("big", "123456789012345678901234567890"))
                         .table;

  EXPECT_EQ(value_of(table, "SM_HOSTS"), R"(["algo-1"])");
  EXPECT_EQ(value_of(table, "SM_FRAMEWORK_PARAMS"), R"({"sagemaker_custom":"x"})");
  EXPECT_EQ(value_of(table, "SM_CHANNEL_VAL-B"), "/opt/ml/input/data/val-b");
  EXPECT_EQ(value_of(table, "SM_HP_F"), "1e-05");
  EXPECT_EQ(value_of(table, "SM_HP_B"), "true");
  EXPECT_EQ(value_of(table, "SM_HP_N"), "");
  EXPECT_EQ(value_of(table, "SM_HP_O"), R"({"a":"\u0436","b":1})");
  EXPECT_EQ(value_of(table, "SM_HP_BIG"), "123456789012345678901234567890");
  EXPECT_EQ(value_of(table, "SM_IS_HETERO"), "false");
  EXPECT_EQ(value_of(table, "SM_LOG_LEVEL"), "20");
  EXPECT_EQ(value_of(table, "SM_USER_ARGS"), R"(["--a","b"])");
  EXPECT_EQ(value_of(table, "SM_TOPOLOGY"), "(absent)");
}

TEST(Environment, NamesThatDifferInCaseShareOneVariable) {
  const auto table = environment_of(a_job().with("lr", 1).with("x", 0).with("LR", 2)).table;

  EXPECT_EQ(value_of(table, "SM_HP_LR"), "2");
}

TEST(Environment, NamesAShellCannotReadHaveASecondCopy) {
  const JobEnvironment environment = environment_of(
      a_job().with("batch-size", 8).with("a.b", 1).with("a_b", 2).with("ж", 3).with_channel("v-1"));

  EXPECT_EQ(value_of(environment.table, "SM_HP_BATCH-SIZE"), "8");
  EXPECT_EQ(value_of(environment.others, "SM_HP_BATCH_SIZE"), "8");
  EXPECT_EQ(value_of(environment.others, "SM_CHANNEL_V_1"), "/opt/ml/input/data/v-1");
  EXPECT_EQ(value_of(environment.table, "SM_HP_A_B"), "2");
  EXPECT_EQ(value_of(environment.others, "SM_HP_A_B"), "(absent)");
  EXPECT_EQ(value_of(environment.others, "SM_HP__"), "3");
}

TEST(Environment, NamesThatCannotBeExportedAreLeftOutWithAWarning) {
  const JobEnvironment environment = environment_of(a_job().with("a=b", 1));

  EXPECT_EQ(find_variable(environment.table, "SM_HP_A=B"), nullptr);
  EXPECT_THAT(environment.warnings, ElementsAre(HasSubstr("SM_HP_A=B is left out")));
}

TEST(Environment, LongValuesMoveToFiles) {
  const std::string value(140'000, 'x');
  const JobEnvironment environment = environment_of(a_job().with("text", value));

  EXPECT_EQ(value_of(environment.table, "SM_HP_TEXT_FILE"),
            "/opt/ml/input/config/sm_env/SM_HP_TEXT");
  EXPECT_EQ(find_variable(environment.table, "SM_HP_TEXT"), nullptr);
  EXPECT_EQ(environment.files.size(), 3);  // SM_HPS and SM_TRAINING_ENV hold it, too
  EXPECT_EQ(environment.files.back().content, value);
  EXPECT_THAT(environment.warnings, Contains(HasSubstr("SM_HP_TEXT has 140000 bytes")));
  EXPECT_TRUE(is_host_variable("SM_TRAINING_ENV_FILE"));
}

TEST(Environment, TheLimitIsThatOfOneString) {
  // "SM_HP_T=" and the NUL take nine bytes of the 131072.
  EXPECT_EQ(
      find_variable(environment_of(a_job().with("t", std::string(131'064, 'x'))).table, "SM_HP_T"),
      nullptr);
  EXPECT_NE(
      find_variable(environment_of(a_job().with("t", std::string(131'063, 'x'))).table, "SM_HP_T"),
      nullptr);
}

TEST(Environment, TheLongestMoveToFilesUntilAllFit) {
  JobBuilder job = a_job();
  for (int i = 10; i < 25; ++i)
    job = job.with("v" + std::to_string(i), std::string(90'000 + i, 'x'));

  const JobEnvironment environment = environment_of(job);

  std::size_t bytes = 0;
  for (const Variable& variable : environment.table) bytes += variable.value.size();
  EXPECT_LE(bytes, 1024 * 1024);
  EXPECT_EQ(find_variable(environment.table, "SM_HP_V24"), nullptr);
  EXPECT_NE(find_variable(environment.table, "SM_HP_V24_FILE"), nullptr);
  EXPECT_NE(find_variable(environment.table, "SM_HP_V10"), nullptr);
}

TEST(Environment, RendezvousAndNcclDefaults) {
  const auto others = environment_of(a_job()).others;

  EXPECT_EQ(value_of(others, "MASTER_ADDR"), "algo-1");
  EXPECT_EQ(value_of(others, "MASTER_PORT"), "7777");
  EXPECT_EQ(value_of(others, "NCCL_SOCKET_IFNAME"), "eth0");
  EXPECT_EQ(value_of(others, "NCCL_IB_DISABLE"), "1");
  EXPECT_EQ(value_of(others, "NCCL_DEBUG"), "WARN");
  EXPECT_EQ(value_of(others, "SM_DLC_TORCH_VERSION"), "2.11.0+cpu");
  EXPECT_EQ(value_of(others, "SAGEMAKER_REGION"), "");
  EXPECT_EQ(value_of(environment_of(a_job(), true).others, "NCCL_IB_DISABLE"), "(absent)");
}

TEST(Environment, WhatTheUserSetStays) {
  const JobEnvironment environment =
      environment_of(a_job().with_variable("MASTER_PORT", "9").with_variable("NCCL_DEBUG", "WARN"));

  EXPECT_EQ(value_of(environment.others, "MASTER_PORT"), "9");
  EXPECT_THAT(environment.notes, ElementsAre(HasSubstr("MASTER_PORT=9 is kept")));
}

TEST(Environment, NewerSdksFindTheirNames) {
  const auto others =
      environment_of(a_job().with_hosts({"algo-2", "algo-1"}).on_host("algo-2")).others;

  EXPECT_EQ(value_of(others, "SM_HOST_COUNT"), "2");
  EXPECT_EQ(value_of(others, "SM_CURRENT_HOST_RANK"), "1");
  EXPECT_EQ(value_of(others, "SM_SOURCE_DIR"), "/opt/ml/code");
}

TEST(Environment, PythonPathStartsWithTheCode) {
  EXPECT_EQ(
      value_of(environment_of(a_job().with_variable("PYTHONPATH", "/mine")).table, "PYTHONPATH"),
      "/opt/ml/code:/opt/smp/bin:/mine");
}

TEST(TrainingEnvironment, HasExactlyTheReferencesKeys) {
  std::vector<std::string> keys;
  const JobEnvironment environment = environment_of(a_job());
  for (const auto& member : *environment.training_environment.object()) {
    keys.push_back(member.key);
  }

  EXPECT_THAT(
      keys,
      ElementsAre("additional_framework_parameters", "channel_input_dirs", "current_host",
                  "current_instance_group", "current_instance_group_hosts", "current_instance_type",
                  "distribution_hosts", "distribution_instance_groups", "framework_module", "hosts",
                  "hyperparameters", "input_config_dir", "input_data_config", "input_dir",
                  "instance_groups", "instance_groups_dict", "is_hetero", "is_master",
                  "is_modelparallel_enabled", "is_smddpmprun_installed", "is_smddprun_installed",
                  "job_name", "log_level", "master_hostname", "model_dir", "module_dir",
                  "module_name", "network_interface_name", "num_cpus", "num_gpus", "num_neurons",
                  "output_data_dir", "output_dir", "output_intermediate_dir", "resource_config",
                  "topology", "user_entry_point"));
}

TEST(TrainingEnvironment, ModelParallelIsTrueOrNull) {
  const auto flag = [](const JobBuilder& job) {
    return *environment_of(job).training_environment.find("is_modelparallel_enabled");
  };

  EXPECT_TRUE(flag(a_job()).is_null());
  EXPECT_EQ(flag(a_job().with("mp_parameters", R"({"partitions": 2})")), opt_ml::Value(true));
}

}  // namespace
}  // namespace entrypoint
