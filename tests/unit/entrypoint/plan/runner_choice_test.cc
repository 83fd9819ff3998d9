// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/runner_choice.h"

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

constexpr const char* kMpi = "sagemaker_mpi_enabled";
constexpr const char* kNativeDdp = "sagemaker_pytorch_ddp_enabled";
constexpr const char* kTorchrun = "sagemaker_torch_distributed_enabled";
constexpr const char* kSmddp = "sagemaker_distributed_dataparallel_enabled";
constexpr const char* kXla = "sagemaker_pytorch_xla_multi_worker_enabled";

RunnerChoice choice_of(const JobConfig& job, const HostFacts& facts = a_machine()) {
  return choose_runner(job, facts);
}

JobBuilder with_flags(const std::vector<const char*>& flags) {
  JobBuilder job = a_job();
  for (const char* flag : flags) job = job.with(flag, true);
  return job;
}

TEST(RunnerChoice, TheFirstOfTheTableWins) {
  struct Row {
    std::vector<const char*> flags;
    Runner runner;
  };
  const Row rows[] = {{{}, Runner::kProcess},
                      {{kMpi}, Runner::kMpi},
                      {{kNativeDdp}, Runner::kSmddp},
                      {{kTorchrun}, Runner::kTorchrun},
                      {{kSmddp}, Runner::kSmddp},
                      {{kMpi, kNativeDdp, kTorchrun, kSmddp, kXla}, Runner::kMpi},
                      {{kNativeDdp, kTorchrun, kSmddp}, Runner::kSmddp},
                      {{kTorchrun, kSmddp, kXla}, Runner::kTorchrun},
                      {{kSmddp, kXla}, Runner::kSmddp},
                      {{"sagemaker_parameter_server_enabled"}, Runner::kProcess},
                      {{"sagemaker_multi_worker_mirrored_strategy_enabled"}, Runner::kProcess}};
  for (const Row& row : rows) {
    const JobConfig job = with_flags(row.flags);
    EXPECT_EQ(choice_of(job).kind, row.runner) << row.flags.size();
    // Images without a training module choose alike: nothing there depends on not being able to.
    JobConfig pytorch = job;
    pytorch.program.framework_module = kPyTorchModule;
    EXPECT_EQ(choice_of(pytorch).kind, row.runner);
  }
}

TEST(RunnerChoice, TheReasonNamesTheFlag) {
  EXPECT_EQ(choice_of(with_flags({kTorchrun})).reason,
            "sagemaker_torch_distributed_enabled is true: torchrun");
  EXPECT_EQ(choice_of(with_flags({kNativeDdp, kSmddp})).reason,
            "sagemaker_pytorch_ddp_enabled is true: SMDDP");
}

TEST(RunnerChoice, TheVariableNamesItWhateverTheHyperparametersSay) {
  struct Row {
    const char* value;
    Runner runner;
  };
  const Row rows[] = {{"mpi", Runner::kMpi},
                      {"smddp", Runner::kSmddp},
                      {"torchrun", Runner::kTorchrun},
                      {"process", Runner::kProcess}};
  HostFacts facts = a_machine();
  facts.num_gpus = 4;
  for (const auto& [value, runner] : rows) {
    const JobBuilder job =
        a_job().with_hosts({"algo-1", "algo-2"}).with_variable("SM_LAUNCH_RUNNER", value);

    const RunnerChoice choice = choice_of(job, facts);

    EXPECT_EQ(choice.kind, runner) << value;
    EXPECT_THAT(choice.hosts, ElementsAre("algo-1", "algo-2")) << value;
    EXPECT_EQ(choice.processes_per_host, runner == Runner::kProcess ? 1 : 4) << value;
    EXPECT_THAT(choice.reason, HasSubstr(std::string("SM_LAUNCH_RUNNER=") + value)) << value;
    EXPECT_THAT(choice.notes, IsEmpty()) << value;
    EXPECT_EQ(choice_of(JobBuilder(job).with(kTorchrun, true)).kind, runner) << value;
  }
  EXPECT_THAT(
      choice_of(with_flags({kMpi, kTorchrun}).with_variable("SM_LAUNCH_RUNNER", "torchrun")).notes,
      ElementsAre("sagemaker_mpi_enabled=true has no effect beside SM_LAUNCH_RUNNER"));
  EXPECT_THAT(choice_of(with_flags({kMpi}).with_variable("SM_LAUNCH_RUNNER", "process")).notes,
              ElementsAre("sagemaker_mpi_enabled=true has no effect beside SM_LAUNCH_RUNNER"));
  EXPECT_EQ(choice_of(with_flags({kMpi}).with_variable("SM_LAUNCH_RUNNER", "auto")).kind,
            Runner::kMpi);
  EXPECT_THAT(message_of([] { JobConfig(a_job().with_variable("SM_LAUNCH_RUNNER", "mpirun")); }),
              HasSubstr("SM_LAUNCH_RUNNER"));
}

TEST(RunnerChoice, WhatHasNoEffectBesideItIsSaid) {
  EXPECT_THAT(choice_of(with_flags({kMpi, kTorchrun})).notes,
              ElementsAre("sagemaker_torch_distributed_enabled=true has no effect beside "
                          "sagemaker_mpi_enabled"));
  EXPECT_THAT(choice_of(with_flags({kTorchrun})).notes, IsEmpty());
}

TEST(RunnerChoice, PyTorchXlaIsRefusedWithAWayOut) {
  const std::string message = message_of([] { choice_of(with_flags({kXla})); });

  EXPECT_THAT(message,
              HasSubstr("sagemaker_pytorch_xla_multi_worker_enabled=true, is not offered"));
  EXPECT_THAT(message, HasSubstr("use torchrun"));
}

TEST(RunnerChoice, MpiAndSmddpHaveAMasterTorchrunHasNone) {
  for (const char* flag : {kMpi, kSmddp, kNativeDdp}) {
    const JobBuilder job = with_flags({flag}).with_hosts({"algo-1", "algo-2"});
    EXPECT_EQ(choice_of(job).role, Role::kMaster) << flag;
    EXPECT_EQ(choice_of(JobBuilder(job).on_host("algo-2")).role, Role::kWorker) << flag;
  }
  EXPECT_EQ(choice_of(with_flags({kTorchrun}).with_hosts({"algo-1", "algo-2"})).role, Role::kAlone);
}

TEST(RunnerChoice, ProcessesAreCountedByFlagThenGpusThenNeuronCores) {
  for (const char* flag : {kMpi, kSmddp, kTorchrun}) {
    HostFacts facts = a_machine();
    EXPECT_EQ(choice_of(with_flags({flag}), facts).processes_per_host, 1);
    facts.num_neurons = 32;
    EXPECT_EQ(choice_of(with_flags({flag}), facts).processes_per_host, 32);
    facts.num_gpus = 8;
    EXPECT_EQ(choice_of(with_flags({flag}), facts).processes_per_host, 8);
    const JobBuilder given = with_flags({flag}).with("sagemaker_mpi_num_of_processes_per_host", 3);
    EXPECT_EQ(choice_of(given, facts).processes_per_host, 3);
    const JobBuilder zero = with_flags({flag}).with("sagemaker_mpi_num_of_processes_per_host", 0);
    EXPECT_EQ(choice_of(zero, facts).processes_per_host, 8);
  }
}

TEST(RunnerChoice, ModelAndDataParallelTogetherAreOneWarningThatNamesBoth) {
  const JobBuilder job =
      with_flags({kSmddp}).with("mp_parameters", R"({"partitions": 2, "ddp": true})");

  EXPECT_THAT(choice_of(JobBuilder(job).with(kMpi, true)).warnings,
              ElementsAre("mp_parameters together with sagemaker_distributed_dataparallel_enabled="
                          "true is not supported: the MPI runner is taken and the latter has no "
                          "effect"));
  EXPECT_THAT(choice_of(JobBuilder(job).with(kTorchrun, true)).warnings,
              ElementsAre(HasSubstr("the torchrun runner is taken")));
  EXPECT_THAT(choice_of(job).warnings, ElementsAre(HasSubstr("the SMDDP runner is taken")));
}

TEST(RunnerChoice, AGroupOutsideTheDistributionRunsPlainProcesses) {
  const JobBuilder job = with_flags({kTorchrun})
                             .with_hosts({"algo-1", "algo-2", "algo-3"})
                             .with_group("data", {"algo-1"})
                             .with_group("train", {"algo-3", "algo-2"})
                             .with("sagemaker_distribution_instance_groups", R"(["train"])");

  const RunnerChoice outside = choice_of(JobBuilder(job).in_group("data"));
  EXPECT_EQ(outside.kind, Runner::kProcess);
  EXPECT_EQ(outside.reason, "group data takes no part in the distribution: a plain process");
  EXPECT_THAT(outside.hosts, ElementsAre("algo-1", "algo-2", "algo-3"));

  const RunnerChoice inside = choice_of(JobBuilder(job).in_group("train").on_host("algo-2"));
  EXPECT_EQ(inside.kind, Runner::kTorchrun);
  EXPECT_THAT(inside.hosts, ElementsAre("algo-3", "algo-2"));  // file order, not sorted
}

TEST(RunnerChoice, GroupsOfUnlikeMachinesShouldSayHowManyProcesses) {
  const JobBuilder job = with_flags({kMpi})
                             .with_hosts({"algo-1", "algo-2"})
                             .with_group("big", {"algo-1"}, "ml.p4d.24xlarge")
                             .with_group("small", {"algo-2"}, "ml.g5.xlarge")
                             .in_group("big")
                             .with("sagemaker_distribution_instance_groups", R"(["big","small"])");

  EXPECT_THAT(
      choice_of(job).warnings,
      ElementsAre(HasSubstr("big (ml.p4d.24xlarge) and small (ml.g5.xlarge) run together")));
  EXPECT_THAT(
      choice_of(JobBuilder(job).with("sagemaker_mpi_num_of_processes_per_host", 1)).warnings,
      IsEmpty());
}

TEST(RunnerChoice, AForeignTrainingModuleIsCalledOnEveryHost) {
  const JobBuilder job = with_flags({kMpi})
                             .with_hosts({"algo-1", "algo-2"})
                             .with_variable("SAGEMAKER_TRAINING_MODULE", "mine.training:main");

  const RunnerChoice choice = choice_of(job);

  EXPECT_EQ(choice.kind, Runner::kTrainingModule);
  EXPECT_EQ(choice.role, Role::kAlone);
  EXPECT_THAT(choice.reason, HasSubstr("SAGEMAKER_TRAINING_MODULE=mine.training:main is not one"));
  EXPECT_THAT(choice_of(JobBuilder(job).with_variable("SM_LAUNCH_RUNNER", "mpi")).warnings,
              ElementsAre(HasSubstr("SM_LAUNCH_RUNNER has no effect")));
}

TEST(RunnerChoice, AJobHandedOverByAmazonsLauncherIsAPyTorchJob) {
  // Called again, the module would hand it over again, for ever.
  JobBuilder job = with_flags({kMpi});
  job.with_variable("SAGEMAKER_TRAINING_MODULE", "smdistributed.training:main");

  EXPECT_EQ(choice_of(job).kind, Runner::kMpi);
}

TEST(RunnerChoice, TheNativeLauncherSwitchIsAnsweredWithANote) {
  EXPECT_THAT(choice_of(with_flags({kTorchrun, "sagemaker_toolkit_native_launcher_enabled"})).notes,
              ElementsAre(HasSubstr("sagemaker_toolkit_native_launcher_enabled has no effect")));
}

}  // namespace
}  // namespace entrypoint
