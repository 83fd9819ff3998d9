// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/launch_plan.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/plan/environment.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/entrypoint/plan/launch_plans.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing_support::message_of;

std::string plan_error(const JobConfig& job, const HostFacts& facts = a_machine()) {
  return message_of([&] { plan_of(job, facts); });
}

std::ptrdiff_t count_of(const Words& argv, const std::string& word) {
  return std::ranges::count(argv, word);
}

TEST(LaunchPlan, WithoutADistributionEveryHostRunsAPlainProcess) {
  const LaunchPlan plan = plan_of(a_job().with_hosts({"algo-1", "algo-2"}).with("lr", "0.1"));

  EXPECT_EQ(plan.outline.runner.kind, Runner::kProcess);
  EXPECT_EQ(plan.outline.runner.role, Role::kAlone);
  EXPECT_FALSE(plan.outline.runner.spans_hosts());
  EXPECT_THAT(plan.command.argv, ElementsAre("/usr/bin/python3", "--", "train.py", "--lr", "0.1"));
  EXPECT_EQ(plan.command.argv, plan.command.user_command);
  EXPECT_EQ(plan.outline.code.folder, "/opt/ml/code");
  EXPECT_EQ(value_of(plan, "OMP_NUM_THREADS"), "(absent)");
  EXPECT_THAT(plan.outline.ranks.places, IsEmpty());
}

TEST(LaunchPlan, TwoHostsWithEightGpusGiveSixteenSlots) {
  HostFacts facts = a_machine();
  facts.num_gpus = 8;
  const LaunchPlan plan =
      plan_of(a_job().with_hosts({"algo-1", "algo-2"}).with("sagemaker_mpi_enabled", true), facts);

  EXPECT_EQ(plan.outline.ranks.total_processes, 16);
  EXPECT_TRUE(has_sequence(plan.command.argv, {"--host", "algo-1:8,algo-2:8", "-np", "16"}));
  EXPECT_EQ(plan.outline.runner.role, Role::kMaster);
  EXPECT_TRUE(plan.outline.runner.spans_hosts());
  EXPECT_EQ(plan.outline.ranks.places.size(), 16);
  EXPECT_EQ(plan.outline.ranks.places[9].host, "algo-2");
  EXPECT_EQ(plan.outline.ranks.places[9].local_rank, 1);
}

TEST(LaunchPlan, OneProcessAHostNamesNoSlots) {
  const LaunchPlan plan = plan_of(a_job().with_hosts({"algo-1", "algo-2"}).with_mpi(1));

  EXPECT_TRUE(has_sequence(plan.command.argv, {"--host", "algo-1,algo-2", "-np", "2"}));
}

TEST(LaunchPlan, AWorkerServesAndRunsNothing) {
  const LaunchPlan plan =
      plan_of(a_job().with_hosts({"algo-1", "algo-2"}).on_host("algo-2").with_mpi(2));

  EXPECT_EQ(plan.outline.runner.role, Role::kWorker);
  EXPECT_THAT(plan.command.argv, IsEmpty());
  EXPECT_THAT(plan.command.user_command,
              ElementsAre("/usr/bin/python3", "-m", "mpi4py", "train.py"));
  EXPECT_EQ(value_of(plan.outline.environment.host_variables, "SM_CURRENT_HOST"), "algo-2");
  EXPECT_EQ(value_of(plan.outline.environment.host_variables, "OMP_NUM_THREADS"), "2");
}

TEST(LaunchPlan, RanksRunUnderTheLaunchersShim) {
  const LaunchPlan plan = plan_of(a_job().with_mpi(2).with("a", "x y"));

  EXPECT_TRUE(has_sequence(plan.command.argv,
                           {"/opt/smp/bin/train", "--rank-exec", "--", "/usr/bin/python3", "-m",
                            "mpi4py", "train.py", "-a", "x y"}));
}

TEST(LaunchPlan, VariablesThatTellHostsApartAreNotExportedByTheMaster) {
  const LaunchPlan plan = plan_of(a_job().with_mpi(2).with("lr", 1));

  for (const char* name :
       {"SM_CURRENT_HOST", "SM_NUM_GPUS", "SM_RESOURCE_CONFIG", "SM_TRAINING_ENV",
        "SM_CURRENT_INSTANCE_GROUP_HOSTS", "OMP_NUM_THREADS"}) {
    EXPECT_FALSE(has_sequence(plan.command.argv, {"-x", name})) << name;
    EXPECT_NE(value_of(plan.outline.environment.host_variables, name), "(absent)") << name;
  }
  for (const char* name : {"SM_HOSTS", "SM_HP_LR", "PYTHONPATH", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", name})) << name;
  }
}

TEST(LaunchPlan, CredentialsGoByNameOnly) {
  const LaunchPlan plan =
      plan_of(a_job()
                  .with_mpi(1)
                  .with_variable("AWS_SECRET_ACCESS_KEY", "hidden")
                  .with_variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2"));

  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "AWS_SECRET_ACCESS_KEY"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"}));
  EXPECT_FALSE(has_sequence(plan.command.argv, {"-x", "AWS_ACCESS_KEY_ID"}));
  EXPECT_THAT(plan.command.argv, Each(Not(HasSubstr("hidden"))));
}

TEST(LaunchPlan, EveryMcaParameterAndVariableComesOnce) {
  const LaunchPlan plan = plan_of(
      a_job()
          .with_mpi(2)
          .on_instance("ml.p4d.24xlarge")
          .with("mp_parameters", R"({"partitions": 2})")
          .with("sagemaker_mpi_custom_mpi_options",
                "--mca btl_vader_single_copy_mechanism none -x NCCL_PROTO=LL -x NCCL_DEBUG=TRACE"));

  EXPECT_EQ(count_of(plan.command.argv, "btl_vader_single_copy_mechanism"), 1);
  EXPECT_EQ(
      std::ranges::count_if(plan.command.argv,
                            [](const std::string& word) { return word.starts_with("NCCL_PROTO"); }),
      1);
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "NCCL_PROTO=LL"}));
  EXPECT_TRUE(has_sequence(plan.command.argv, {"-x", "NCCL_DEBUG=TRACE"}));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("-x NCCL_PROTO=LL replaces the launcher's")));
}

TEST(LaunchPlan, EfaFlagsFollowTheInstanceType) {
  const Words p4d = plan_of(a_job().with_mpi(1).on_instance("ml.p4d.24xlarge")).command.argv;
  EXPECT_TRUE(has_sequence(
      p4d, {"-x", "FI_PROVIDER=efa", "-x", "NCCL_PROTO=simple", "-x", "FI_EFA_USE_DEVICE_RDMA=1"}));
  EXPECT_TRUE(has_sequence(p4d, {"-x", "FI_EFA_FORK_SAFE=1"}));

  const Words g5 = plan_of(a_job().with_mpi(1).on_instance("ml.g5.48xlarge")).command.argv;
  EXPECT_TRUE(has_sequence(g5, {"-x", "FI_PROVIDER=efa"}));
  EXPECT_FALSE(has_sequence(g5, {"-x", "FI_EFA_USE_DEVICE_RDMA=1"}));
  EXPECT_TRUE(has_sequence(g5, {"-x", "FI_EFA_FORK_SAFE=1"}));

  const Words off =
      plan_of(
          a_job().with_mpi(1).on_instance("ml.p4d.24xlarge").with_variable("SM_LAUNCH_EFA", "off"))
          .command.argv;
  EXPECT_FALSE(has_sequence(off, {"-x", "FI_PROVIDER=efa"}));
}

TEST(LaunchPlan, NcclGetsItsPluginForEfaUnderEveryRunner) {
  constexpr const char* kPlugin = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so";
  const Words flag = {"-x", std::string("NCCL_NET_PLUGIN=") + kPlugin};
  HostFacts facts = a_machine();
  facts.efa = {.devices = {"rdmap0s6"}, .has_gpus = true, .nccl_plugin = kPlugin};

  EXPECT_TRUE(has_sequence(plan_of(a_job().with_mpi(1), facts).command.argv, flag));
  EXPECT_TRUE(has_sequence(plan_of(a_job().with_smddp(1), facts).command.argv, flag));
  EXPECT_EQ(value_of(plan_of(a_job().with_torchrun(1), facts), "NCCL_NET_PLUGIN"), kPlugin);
  // Plain processes have to ask.
  EXPECT_EQ(value_of(plan_of(a_job(), facts), "NCCL_NET_PLUGIN"), "(absent)");
  EXPECT_EQ(
      value_of(plan_of(a_job().with_variable("SM_LAUNCH_EFA", "on"), facts), "NCCL_NET_PLUGIN"),
      kPlugin);
  EXPECT_FALSE(has_sequence(
      plan_of(a_job().with_mpi(1).with_variable("SM_LAUNCH_EFA", "off"), facts).command.argv,
      flag));
}

TEST(LaunchPlan, ThePluginThatTheJobSetsStays) {
  HostFacts facts = a_machine();
  facts.efa = {.devices = {"rdmap0s6"}, .has_gpus = true, .nccl_plugin = "mine"};
  const auto own = [](JobBuilder job) { return job.with_variable("NCCL_NET_PLUGIN", "mine"); };

  EXPECT_TRUE(has_sequence(plan_of(own(a_job().with_mpi(1)), facts).command.argv,
                           {"-x", "NCCL_NET_PLUGIN=mine"}));
  EXPECT_TRUE(has_sequence(plan_of(own(a_job().with_smddp(1)), facts).command.argv,
                           {"-x", "NCCL_NET_PLUGIN=mine"}));
  // It is inherited, so nothing is set over it.
  EXPECT_EQ(value_of(plan_of(own(a_job().with_torchrun(1)), facts), "NCCL_NET_PLUGIN"), "(absent)");
  EXPECT_EQ(count_of(plan_of(own(a_job().with_mpi(1).with("sagemaker_mpi_custom_mpi_options",
                                                          "-x NCCL_NET_PLUGIN=none")),
                             facts)
                         .command.argv,
                     "NCCL_NET_PLUGIN=mine"),
            0);
}

TEST(LaunchPlan, CustomOptionsStandBeforeTheFabrics) {
  const Words argv =
      plan_of(a_job()
                  .with_mpi(1)
                  .on_instance("ml.p4d.24xlarge")
                  .with("sagemaker_mpi_custom_mpi_options", "--verbose --NCCL_DEBUG WARN"))
          .command.argv;

  EXPECT_TRUE(has_sequence(argv, {"-x", "NCCL_DEBUG=WARN"}));
  EXPECT_TRUE(has_sequence(argv, {"--verbose", "-x", "FI_PROVIDER=efa"}));
}

TEST(LaunchPlan, TheHostnameShimStandsBeforeTheUsersPreload) {
  const LaunchPlan plan = plan_of(a_job().with_mpi(1).with_variable("LD_PRELOAD", "/mine.so"));

  EXPECT_TRUE(
      has_sequence(plan.command.argv, {"-x", "LD_PRELOAD=/opt/smp/libhostname.so:/mine.so"}));
  EXPECT_EQ(value_of(plan, "LD_PRELOAD"), "/opt/smp/libhostname.so:/mine.so");
}

TEST(LaunchPlan, ASmallSharedMemoryIsAWarningWithWhereTensorsLie) {
  HostFacts facts = a_machine();
  facts.shared_memory_bytes = std::uint64_t{64} << 20;
  const std::string prefix = "/dev/shm has 64 MiB, which NCCL and data loaders use: ";

  for (const JobBuilder& job : {a_job(), a_job().with_mpi(1), a_job().with_torchrun(1)}) {
    EXPECT_THAT(plan_of(job, facts).warnings,
                Contains(AllOf(StartsWith(prefix), HasSubstr("lie in /tmp instead"))));
    EXPECT_THAT(plan_of(JobBuilder(job).with_variable("TMPDIR", "/scratch"), facts).warnings,
                Contains(HasSubstr("lie in /scratch instead")));
  }
  facts.hostname_shim.clear();
  EXPECT_THAT(plan_of(a_job(), facts).warnings, Contains(HasSubstr("a bus error")));
  facts.shared_memory_bytes = std::uint64_t{1} << 30;
  EXPECT_THAT(plan_of(a_job(), facts).warnings, Not(Contains(HasSubstr("/dev/shm"))));
}

TEST(LaunchPlan, CpusAreSharedAmongTheRanksOfAHost) {
  const LaunchPlan plan = plan_of(a_job().with_mpi(2));
  EXPECT_EQ(value_of(plan, "OMP_NUM_THREADS"), "2");
  EXPECT_THAT(plan.notes,
              Contains(HasSubstr("each rank of this host gets 2 (4 CPUs, 2 processes)")));

  EXPECT_EQ(value_of(plan_of(a_job().with_mpi(64)), "OMP_NUM_THREADS"), "1");

  const LaunchPlan own = plan_of(a_job().with_mpi(2).with_variable("OMP_NUM_THREADS", "7"));
  EXPECT_EQ(value_of(own, "OMP_NUM_THREADS"), "(absent)");
  EXPECT_TRUE(has_sequence(own.command.argv, {"-x", "OMP_NUM_THREADS"}));
}

TEST(LaunchPlan, MoreProcessesThanGpusIsAWarningWithTheNumbers) {
  HostFacts facts = a_machine();
  facts.num_gpus = 4;

  EXPECT_THAT(plan_of(a_job().with_mpi(8), facts).warnings,
              ElementsAre(HasSubstr("8 processes per host, but host algo-1 has 4 GPUs")));
  EXPECT_THAT(plan_of(a_job().with_mpi(4), facts).warnings, IsEmpty());
}

TEST(LaunchPlan, AWorldThatDoesNotDivideIsRefusedWithTheNumbers) {
  const JobConfig job = a_job().with_mpi(3).with(
      "mp_parameters",
      R"({"pipeline_parallel_degree": 2, "tensor_parallel_degree": 1, "ddp": true})");

  const std::string message = plan_error(job);

  EXPECT_THAT(message, HasSubstr("3"));
  EXPECT_THAT(message, HasSubstr("2"));
}

TEST(LaunchPlan, UnknownAndContradictorySettingsAreRefused) {
  const auto with = [](const char* parameters) {
    return plan_error(a_job().with_mpi(4).with("mp_parameters", parameters));
  };

  EXPECT_THAT(with(R"({"partitons": 2})"), HasSubstr("partitons"));
  EXPECT_THAT(with(R"({"partitions": 2, "pipeline_parallel_degree": 4})"), HasSubstr("partitions"));
  EXPECT_THAT(with(R"({"partitions": "two"})"), HasSubstr("partitions"));
  EXPECT_THAT(with(R"({"ddp": true, "horovod": true})"), HasSubstr("horovod"));
  // A process job, too: the script would fail in the same words.
  EXPECT_THAT(plan_error(a_job().with("mp_parameters", R"({"partitons": 2})")),
              HasSubstr("partitons"));
}

TEST(LaunchPlan, RanksKnowTheirCoordinates) {
  const LaunchPlan plan = plan_of(a_job().with_mpi(4).with(
      "mp_parameters",
      R"({"pipeline_parallel_degree": 2, "ddp": true, "placement_strategy": "cluster"})"));

  ASSERT_EQ(plan.outline.ranks.places.size(), 4);
  using Axes = std::vector<RankPlace::Coordinate>;
  EXPECT_EQ(plan.outline.ranks.places[1].grid, (Axes{{"pp", 1}, {"tp", 0}, {"dp", 0}, {"rdp", 0}}));
  EXPECT_EQ(plan.outline.ranks.places[2].grid, (Axes{{"pp", 0}, {"tp", 0}, {"dp", 1}, {"rdp", 1}}));
}

TEST(LaunchPlan, SettingsWithoutMpiAreAWarning) {
  EXPECT_THAT(plan_of(a_job().with("mp_parameters", R"({"pipeline_parallel_degree": 2})")).warnings,
              Contains(HasSubstr("one process per host is started; enable MPI")));
}

TEST(LaunchPlan, AHostOutsideTheDistributionRunsThePlainScript) {
  const LaunchPlan plan =
      plan_of(a_job()
                  .with_hosts({"algo-1", "algo-2"})
                  .with_group("data", {"algo-1"})
                  .with_group("train", {"algo-2"})
                  .in_group("data")
                  .with_mpi(2)
                  .with("sagemaker_distribution_instance_groups", "[\"train\"]"));

  EXPECT_EQ(plan.outline.runner.kind, Runner::kProcess);
  EXPECT_THAT(plan.outline.runner.reason, HasSubstr("group data takes no part"));
  EXPECT_EQ(plan.outline.runner.master, "algo-2");
  EXPECT_EQ(value_of(plan, "MASTER_ADDR"), "algo-2");
}

TEST(LaunchPlan, ProcessCountsOfTheUserWin) {
  EXPECT_EQ(plan_of(a_job().with_mpi(4).with("sagemaker_mpi_num_processes", 2))
                .outline.ranks.total_processes,
            2);

  const LaunchPlan custom =
      plan_of(a_job().with_mpi(4).with("sagemaker_mpi_custom_mpi_options", "-np 3"));
  EXPECT_EQ(custom.outline.ranks.total_processes, 3);
  EXPECT_EQ(count_of(custom.command.argv, "-np"), 1);

  EXPECT_THAT(plan_of(a_job().with_mpi(4).with("sagemaker_mpi_num_processes", 6)).warnings,
              ElementsAre(HasSubstr("6 processes for 4 slots (1 hosts of 4)")));
}

TEST(LaunchPlan, WithoutMpi4pyRanksRunPlainPythonWithAWarning) {
  HostFacts facts = a_machine();
  facts.has_mpi4py = false;

  const LaunchPlan plan = plan_of(a_job().with_mpi(2), facts);

  EXPECT_THAT(plan.command.user_command, ElementsAre("/usr/bin/python3", "train.py"));
  EXPECT_THAT(plan.warnings, Contains(HasSubstr("has no mpi4py")));
}

TEST(LaunchPlan, OneHostWhoseNameDoesNotResolveMeetsAtTheLoopback) {
  HostFacts facts = a_machine();
  facts.current_host_resolves = false;
  facts.interfaces.pop_back();

  const LaunchPlan plan = plan_of(a_job().with_mpi(2), facts);

  EXPECT_EQ(value_of(plan, "MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(value_of(plan, "GLOO_SOCKET_IFNAME"), "lo");
  EXPECT_EQ(plan.outline.network.interface_name, "");
  EXPECT_EQ(count_of(plan.command.argv, "btl_tcp_if_include"), 0);
}

TEST(LaunchPlan, SaysWhatIsFetchedAndUploaded) {
  const LaunchPlan plan =
      plan_of(a_job()
                  .with_code({})
                  .with("sagemaker_submit_directory", "s3://b/code.tar.gz")
                  .with("sagemaker_s3_output", "s3://out/p/")
                  .with_variable("TRAINING_JOB_NAME", "job-1")
                  .with_variable("CA_REPOSITORY_ARN",
                                 "arn:aws:codeartifact:eu-west-1:1:repository/dom/repo"));

  EXPECT_EQ(plan.outline.code.object, (S3Location{"b", "code.tar.gz"}));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("the code is not here yet")));
  EXPECT_EQ(plan.outline.intermediate_output->prefix->text(),
            "s3://out/p/job-1/output/intermediate");
  EXPECT_EQ(plan.outline.package_repository->name, "repo");
  EXPECT_THAT(plan_error(a_job().with_variable("CA_REPOSITORY_ARN", "arn:x")),
              HasSubstr("CA_REPOSITORY_ARN=\"arn:x\""));
}

TEST(LaunchPlan, CodeThatIsThereIsKeptWithANoteOrAWarning) {
  const JobBuilder job = a_job().with("sagemaker_submit_directory", "s3://b/k");

  EXPECT_FALSE(plan_of(job).outline.code.is_fetched());
  EXPECT_THAT(plan_of(job).notes,
              ElementsAre("/opt/ml/code holds code, so s3://b/k is not fetched"));
  EXPECT_THAT(plan_of(JobBuilder(job)
                          .with("sagemaker_program", "lib/train.py")
                          .with_code({.entries = {"setup.py"}}))
                  .warnings,
              ElementsAre(HasSubstr("set SM_LAUNCH_CODE=replace")));
}

TEST(LaunchPlan, AShellGetsWhatOneArgumentCannotHoldOneByOne) {
  const std::string half(70'000, 'x');
  const JobBuilder job = a_job().with_entry_point("run.sh").with("a", half).with("b", half);

  EXPECT_THAT(plan_of(job).command.argv,
              ElementsAre("/bin/sh", "-c", "./run.sh \"$@\"", "./run.sh", "-a", half, "-b", half));
}

TEST(LaunchPlan, ALongHyperparameterIsNamedWithWhereItIs) {
  const JobBuilder job = a_job().with("sizes", std::string(140'000, '1'));
  for (const JobBuilder& any :
       {job, JobBuilder(job).with_mpi(2), JobBuilder(job).with_torchrun(2),
        JobBuilder(job).with_entry_point("run.sh"), JobBuilder(job).with_smddp(1)}) {
    const LaunchPlan plan = plan_of(any);

    EXPECT_THAT(plan.command.user_command, Each(Not(HasSubstr("--sizes"))));
    EXPECT_THAT(plan.warnings,
                Contains("hyperparameter \"sizes\" is not sent as an argument: one holds at most "
                         "131071 bytes, and all together get 524288; read the file that "
                         "SM_HP_SIZES_FILE names"));
    EXPECT_EQ(value_of(plan, "SM_HP_SIZES_FILE"), "/opt/ml/input/config/sm_env/SM_HP_SIZES");
  }
}

TEST(LaunchPlan, AValueThatAVariableHoldsIsNamedByIt) {
  // As an argument each element takes a blank more than as JSON.
  opt_ml::Value::List list;
  for (int i = 0; i < 40'000; ++i) list.emplace_back(10);

  EXPECT_THAT(plan_of(a_job().with("sizes", list)).warnings,
              Contains(HasSubstr("; read SM_HP_SIZES")));
}

TEST(LaunchPlan, ACommandTooLongForOpenMpiGoesByFileOnEveryHost) {
  JobBuilder job = a_job().with_hosts({"algo-1", "algo-2"}).with_mpi(2);
  for (int i = 10; i < 70; ++i) job = job.with("text" + std::to_string(i), std::string(2500, 'x'));

  const LaunchPlan master = plan_of(job);
  const LaunchPlan worker = plan_of(JobBuilder(job).on_host("algo-2"));

  const std::filesystem::path path = "/opt/ml/input/config/sm_env/rank_command";
  EXPECT_THAT(
      Words(master.command.argv.end() - 5, master.command.argv.end()),
      ElementsAre("/opt/smp/bin/train", "--rank-exec", "--command-file", path.string(), "--"));
  for (const LaunchPlan* plan : {&master, &worker}) {
    const auto file = std::ranges::find(plan->files, path, &PlannedFile::path);
    ASSERT_NE(file, plan->files.end());
    EXPECT_TRUE(file->content.starts_with(std::string("/usr/bin/python3\0-m\0mpi4py\0", 27)));
    EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(file->content, '\0')),
              plan->command.user_command.size());
  }
  EXPECT_THAT(master.warnings, Contains(HasSubstr("more than Open MPI passes on")));
}

TEST(LaunchPlan, AmazonsOwnWrapperIsUsedWhereItIs) {
  HostFacts facts = a_machine();
  facts.has_smddpmprun = true;
  const JobBuilder job = a_job().with_mpi(2).on_instance("ml.p4d.24xlarge");

  EXPECT_TRUE(has_sequence(
      plan_of(JobBuilder(job).with("mp_parameters", R"({"partitions": 2})"), facts).command.argv,
      {"--rank-exec", "--", "smddpmprun", "-i", "ml.p4d.24xlarge", "--allow-bypass"}));
  EXPECT_EQ(count_of(plan_of(JobBuilder(job).with(
                                 "mp_parameters",
                                 R"({"partitions": 2, "ddp": true, "ddp_dist_backend": "nccl"})"),
                             facts)
                         .command.argv,
                     "smddpmprun"),
            0);
}

}  // namespace
}  // namespace entrypoint
