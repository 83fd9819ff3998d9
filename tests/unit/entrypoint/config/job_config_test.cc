// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/config/job_config.h"

#include <filesystem>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/config/command_line.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::TemporaryFolder;
using testing_support::write_file;

std::string error_of(const JobBuilder& builder) {
  return message_of([&] { const JobConfig job = builder; });
}

TEST(JobConfig, TheVariableBeatsTheHyperparameterForTheProgram) {
  EXPECT_EQ(JobConfig(a_job()).program.entry_point, "train.py");
  EXPECT_EQ(JobConfig(a_job().with_variable("SAGEMAKER_PROGRAM", "other.py")).program.entry_point,
            "other.py");
  EXPECT_EQ(
      JobConfig(a_job().with("sagemaker_program", "/opt/ml/code/sub/t.py")).program.entry_point,
      "sub/t.py");
}

TEST(JobConfig, TheHyperparameterBeatsTheVariableForTheRest) {
  const JobConfig variable = a_job()
                                 .with_variable("SAGEMAKER_SUBMIT_DIRECTORY", "s3://b/k")
                                 .with_variable("SAGEMAKER_CONTAINER_LOG_LEVEL", "debug");
  EXPECT_EQ(variable.program.module_dir, "s3://b/k");
  EXPECT_EQ(variable.log_level, 10);

  const JobConfig both = a_job()
                             .with_variable("SAGEMAKER_CONTAINER_LOG_LEVEL", "debug")
                             .with("sagemaker_container_log_level", "30")
                             .with("sagemaker_job_name", "7");
  EXPECT_EQ(both.log_level, 30);
  EXPECT_EQ(both.job_name, "7");
  EXPECT_EQ(both.program.module_dir, "/opt/ml/code");
}

TEST(JobConfig, AnUnknownLogLevelIsAWarning) {
  const JobConfig job = a_job().with("sagemaker_container_log_level", "loud");

  EXPECT_EQ(job.log_level, 20);
  EXPECT_THAT(job.warnings, ElementsAre(HasSubstr("log level \"loud\"")));
}

TEST(JobConfig, AMisspelledVariableIsAWarning) {
  const JobConfig job = a_job().with_variable("SM_LAUNCH_DRY_RUNS", "1");

  EXPECT_THAT(job.warnings, ElementsAre("SM_LAUNCH_DRY_RUNS is not known; did you mean "
                                        "SM_LAUNCH_DRY_RUN?"));
}

TEST(JobConfig, RegionIsTheHyperparameterElseTheDefaultRegion) {
  EXPECT_EQ(JobConfig(a_job().with_variable("AWS_REGION", "eu-west-1")).region, "");
  EXPECT_EQ(JobConfig(a_job().with_variable("AWS_DEFAULT_REGION", "eu-west-1")).region,
            "eu-west-1");
}

TEST(JobConfig, RegionIsTheAwsProfilesWhenNothingElseNamesOne) {
  const TemporaryFolder folder;
  const opt_ml::Layout layout(folder.path() / "opt_ml");
  write_file(layout.input_config() / "resourceconfig.json",
             R"({"current_host": "algo-1", "hosts": ["algo-1"]})");
  write_file(folder.path() / ".aws/config", "[default]\nregion = eu-central-1\n");
  smp::Variables environment = {{"HOME", folder.path().string()}};

  EXPECT_EQ(read_job_config(layout, environment).region, "eu-central-1");
  environment["AWS_DEFAULT_REGION"] = "us-west-2";
  EXPECT_EQ(read_job_config(layout, environment).region, "us-west-2");
}

TEST(JobConfig, SwitchesInTextAreUnderstood) {
  EXPECT_FALSE(JobConfig(a_job().with("sagemaker_mpi_enabled", "False")).distribution.mpi);
  EXPECT_FALSE(JobConfig(a_job().with("sagemaker_mpi_enabled", "\"false\"")).distribution.mpi);
  EXPECT_TRUE(JobConfig(a_job().with("sagemaker_mpi_enabled", "1")).distribution.mpi);

  const JobConfig odd = a_job().with("sagemaker_mpi_enabled", "maybe");
  EXPECT_TRUE(odd.distribution.mpi);
  EXPECT_THAT(odd.warnings, ElementsAre(HasSubstr("\"sagemaker_mpi_enabled\" is 'maybe'")));
}

TEST(JobConfig, ProcessCountsAreWholeNumbers) {
  const char* const name = "sagemaker_mpi_num_of_processes_per_host";
  EXPECT_EQ(JobConfig(a_job().with(name, "\"4\"")).distribution.processes_per_host, 4);
  EXPECT_EQ(JobConfig(a_job().with(name, 0)).distribution.processes_per_host, std::nullopt);
  EXPECT_THAT(error_of(a_job().with(name, "-2")), HasSubstr("is -2, expected a whole number"));
  EXPECT_THAT(error_of(a_job().with(name, "2.5")), HasSubstr("is 2.5"));
  EXPECT_THAT(error_of(a_job().with(name, "many")), HasSubstr("is 'many'"));
}

TEST(JobConfig, GroupHostsKeepTheFilesOrderAndTheFirstIsMaster) {
  const JobConfig job = a_job()
                            .with_hosts({"algo-1", "algo-2", "algo-3"})
                            .with_group("train", {"algo-3", "algo-1"})
                            .with_group("data", {"algo-2"})
                            .in_group("train")
                            .with_mpi(1);

  EXPECT_THAT(job.hosts.groups, ElementsAre("train"));
  EXPECT_THAT(job.hosts.distribution, ElementsAre("algo-3", "algo-1"));
  EXPECT_EQ(job.hosts.master, "algo-3");
  EXPECT_FALSE(job.is_master());
  EXPECT_TRUE(job.hosts.current_group_takes_part);
}

TEST(JobConfig, HostsAreSortedByNumberOnRequest) {
  const JobConfig job = a_job()
                            .with_hosts({"algo-10", "algo-9", "algo-1"})
                            .with_variable("SM_LAUNCH_SORT_HOSTS", "1")
                            .with_mpi(1);

  EXPECT_THAT(job.hosts.distribution, ElementsAre("algo-1", "algo-9", "algo-10"));
  EXPECT_EQ(job.hosts.master, "algo-1");
}

TEST(JobConfig, WithoutADistributionTheFirstHostIsMaster) {
  const JobConfig job =
      a_job().with_hosts({"algo-2", "algo-1"}).with_group("g", {"algo-1", "algo-2"});

  EXPECT_THAT(job.hosts.groups, IsEmpty());
  EXPECT_THAT(job.hosts.distribution, IsEmpty());
  EXPECT_EQ(job.hosts.master, "algo-2");
}

TEST(JobConfig, GroupsThatDoNotExistAreRefused) {
  JobBuilder job = a_job().with_group("train", {"algo-1"}).in_group("train").with_mpi(1);

  EXPECT_THAT(error_of(job.with("sagemaker_distribution_instance_groups", "[\"x\"]")),
              HasSubstr("names group \"x\", resourceconfig.json has [\"train\"]"));
  EXPECT_THAT(error_of(a_job().with_mpi(1).with_group("homogeneousCluster", {"algo-9"})),
              HasSubstr("host \"algo-9\" of group \"homogeneousCluster\" is not in hosts"));
  EXPECT_THAT(
      error_of(a_job()
                   .with_hosts({"algo-1", "algo-2"})
                   .with_group("homogeneousCluster", {"algo-2"})
                   .with_mpi(1)),
      HasSubstr("current_host \"algo-1\" is not among the hosts [\"algo-2\"] of its group"));
  EXPECT_THAT(error_of(a_job().with("sagemaker_distribution_instance_groups", "3")),
              HasSubstr("expected a list of group names"));
}

TEST(JobConfig, ModelParallelSettingsComeAsObjectOrText) {
  EXPECT_FALSE(JobConfig(a_job()).is_model_parallel());
  EXPECT_FALSE(JobConfig(a_job().with("mp_parameters", "{}")).is_model_parallel());
  EXPECT_TRUE(JobConfig(a_job().with("mp_parameters", R"({"partitions":2})")).is_model_parallel());
  EXPECT_TRUE(JobConfig(a_job().with("mp_parameters", "partitions=2")).is_model_parallel());
  EXPECT_TRUE(JobConfig(a_job().with_variable("SM_HP_MP_PARAMETERS", R"({"partitions":2})"))
                  .is_model_parallel());
  EXPECT_THAT(error_of(a_job().with("mp_parameters", "[1]")), HasSubstr("is a list"));
}

TEST(JobConfig, ATreeIsReadWhole) {
  const TemporaryFolder folder;
  write_file(folder.path() / "src/pkg/train.py", "");
  write_file(folder.path() / "src/requirements.txt", "");
  opt_ml::TreeRequest request;
  request.directory = folder.path() / "job";
  request.code = folder.path() / "src";
  request.program = "pkg/train.py";
  std::ostringstream out;
  run_make_tree(request, out);
  EXPECT_THAT(out.str(), HasSubstr("SAGEMAKER_BASE_DIR=" + request.directory.string() + " train"));

  const smp::Variables environment{{"SAGEMAKER_BASE_DIR", request.directory.string()}};
  const JobConfig job = read_job_config(find_layout(environment), environment);

  EXPECT_EQ(job.program.entry_point, "pkg/train.py");
  EXPECT_THAT(job.program.code.entries, ElementsAre("pkg", "requirements.txt"));
  EXPECT_TRUE(job.program.code.entry_point_exists);
  EXPECT_FALSE(job.program.code.entry_point_escapes);
  EXPECT_FALSE(job.program.code.entry_point_in_package);
  EXPECT_EQ(job.job_name, "local-job");
}

TEST(CodeFolder, NamesTheModuleThatAScriptIsWithinItsPackage) {
  const TemporaryFolder base;
  const opt_ml::Layout layout(base.path());
  const auto module_of = [&](const std::string& script) {
    write_file(layout.code() / script, "");
    return look_into_code(layout, script, {}).entry_point_module;
  };
  write_file(layout.code() / "src/pkg/__init__.py", "");
  write_file(layout.code() / "src/pkg/sub/__init__.py", "");

  EXPECT_EQ(module_of("src/pkg/train.py"), "src.pkg.train");
  EXPECT_EQ(module_of("src/train.py"), "");
  EXPECT_EQ(module_of("train.py"), "");
  EXPECT_EQ(module_of("src/pkg/run.sh"), "");
  write_file(layout.code() / "setup.py", "");  // installs what is below src

  EXPECT_EQ(module_of("src/pkg/train.py"), "pkg.train");
  EXPECT_EQ(module_of("src/pkg/sub/train.py"), "pkg.sub.train");
}

TEST(CodeFolder, NamesRequirementsThatAreNotAtItsTop) {
  const TemporaryFolder base;
  const opt_ml::Layout layout(base.path());
  const auto found_for = [&](const std::string& entry_point) {
    return look_into_code(layout, entry_point, {}).nested_requirements;
  };
  write_file(layout.code() / "requirements.txt", "");
  write_file(layout.code() / "training/requirements.txt", "");

  EXPECT_EQ(found_for("training/train.py"), "training/requirements.txt");
  EXPECT_EQ(found_for("training/run.sh"), "training/requirements.txt");
  EXPECT_EQ(found_for("-m training.train"), "training/requirements.txt");
  EXPECT_EQ(found_for("train.py"), "");
  EXPECT_EQ(found_for("other/train.py"), "");
}

TEST(JobConfig, ATreesFolderIsQuotedForAShell) {
  const TemporaryFolder folder;
  opt_ml::TreeRequest request;
  request.directory = folder.path() / "a b";
  std::ostringstream out;
  run_make_tree(request, out);
  EXPECT_THAT(out.str(), HasSubstr("BASE_DIR='" + request.directory.string() + "' train"));
}

TEST(JobConfig, AnEntryPointThatLinksOutOfTheFolderIsSeen) {
  const TemporaryFolder folder;
  write_file(folder.path() / "outside.sh", "");
  opt_ml::TreeRequest request;
  request.directory = folder.path() / "job";
  opt_ml::make_tree(request);
  std::filesystem::create_symlink(folder.path() / "outside.sh", request.directory / "code/run.sh");
  const smp::Variables environment{{"SAGEMAKER_PROGRAM", "run.sh"}};

  const JobConfig job = read_job_config(opt_ml::Layout(request.directory), environment);

  EXPECT_TRUE(job.program.code.entry_point_escapes);
}

TEST(JobConfig, TheBaseIsAbsolute) {
  EXPECT_EQ(find_layout({}).base(), "/opt/ml");
  EXPECT_EQ(find_layout({{"SAGEMAKER_BASE_DIR", "job"}}).base(),
            std::filesystem::current_path() / "job");
}

TEST(ProcessEnvironment, IsReadAsItIs) {
  const smp::Variables environment = smp::read_variables();

  EXPECT_FALSE(smp::value_or(environment, "PATH").empty());
  EXPECT_EQ(smp::value_or({{"A", ""}}, "A", "other"), "other");
}

}  // namespace
}  // namespace entrypoint
