// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/job_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/entrypoint/job_builder.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

JobNetwork network_of(const JobConfig& job, const HostFacts& facts = a_machine()) {
  return choose_network(job, facts, choose_runner(job, facts));
}

TEST(JobNetwork, OneMasterForEveryRunner) {
  const JobBuilder job = a_job()
                             .with_hosts({"algo-1", "algo-2"})
                             .with_group("train", {"algo-2", "algo-1"})
                             .in_group("train");

  EXPECT_EQ(network_of(JobBuilder(job).with_mpi(1)).master_address, "algo-2");
  EXPECT_EQ(network_of(JobBuilder(job).with_smddp(1)).master_address, "algo-2");
  EXPECT_EQ(network_of(JobBuilder(job).with_torchrun(1)).master_address, "algo-2");
  // Without a distribution it is the first host of the job.
  EXPECT_EQ(network_of(job).master_address, "algo-1");
}

TEST(JobNetwork, AMissingInterfaceIsReplacedOnSeveralHosts) {
  HostFacts facts = a_machine();
  facts.interfaces[1].name = "ens5";
  facts.route_interface = "ens5";

  const JobNetwork network =
      network_of(a_job().with_hosts({"algo-1", "algo-2"}).with_torchrun(1), facts);

  EXPECT_EQ(network.interface_name, "ens5");
  EXPECT_EQ(network.gloo_interface, "ens5");
  EXPECT_THAT(network.warnings,
              ElementsAre(HasSubstr("\"eth0\" of resourceconfig.json does not exist")));
}

TEST(JobNetwork, AddressesOfIpv6AloneAreAsGoodForEveryRunner) {
  HostFacts facts = a_machine();
  facts.interfaces[1].addresses = {"fd77::1", "fe80::1%eth0"};
  facts.route_interface = "eth0";
  const JobBuilder job = a_job().with_hosts({"algo-1", "algo-2"});

  for (const JobBuilder& any : {job, JobBuilder(job).with_torchrun(1), JobBuilder(job).with_mpi(1),
                                JobBuilder(job).with_smddp(1)}) {
    const JobNetwork network = network_of(any, facts);

    EXPECT_EQ(network.interface_name, "eth0");
    EXPECT_THAT(network.warnings, IsEmpty());
    EXPECT_THAT(network.notes, Contains("network interface \"eth0\" of resourceconfig.json has "
                                        "addresses of IPv6 alone on algo-1"));
  }
}

TEST(JobNetwork, AddressesOfIpv6AloneMayBeTooNewForOpenMpi5) {
  HostFacts facts = a_machine();
  facts.has_prterun = true;
  facts.route_interface = "eth0";
  const JobBuilder job = a_job().with_hosts({"algo-1", "algo-2"}).with_mpi(1);
  EXPECT_THAT(network_of(job, facts).warnings, IsEmpty());

  facts.interfaces[1].addresses = {"fd77::1", "fe80::1%eth0"};

  EXPECT_THAT(network_of(job, facts).warnings, ElementsAre(HasSubstr("by torchrun")));
  EXPECT_THAT(network_of(a_job().with_hosts({"algo-1", "algo-2"}).with_torchrun(1), facts).warnings,
              IsEmpty());
}

TEST(JobNetwork, HostNamesThatMpirunRefusesAreRefusedBefore) {
  const auto error_of = [](const std::string& host, const JobBuilder& job) {
    return message_of([&] {
      network_of(JobBuilder(job).with_hosts({host, "algo-2"}).on_host(host));
    });
  };

  for (const JobBuilder& job : {a_job().with_mpi(1), a_job().with_smddp(1)}) {
    EXPECT_THAT(error_of("algo_1", job), HasSubstr("host name \"algo_1\": mpirun takes letters, "
                                                   "digits, dots and hyphens, and no '_'"));
    EXPECT_THAT(error_of("algo 1", job), HasSubstr("and no ' '"));
    EXPECT_EQ(error_of("node-1.example", job), "");
  }
  EXPECT_EQ(error_of("algo_1", a_job().with_torchrun(1)), "");
}

TEST(JobNetwork, EfaIsDecidedForRunnersThatTalkBetweenProcesses) {
  const JobBuilder job = a_job().on_instance("ml.p4d.24xlarge");

  EXPECT_FALSE(network_of(job).efa.enabled);
  EXPECT_TRUE(network_of(JobBuilder(job).with_torchrun(8)).efa.enabled);
  EXPECT_FALSE(network_of(JobBuilder(job).with_torchrun(8).with_variable("SM_LAUNCH_EFA", "off"))
                   .efa.enabled);
}

TEST(JobNetwork, EfaThatIsAskedForHasToBeThereForAllRunners) {
  const JobBuilder job = a_job().with_variable("SM_LAUNCH_EFA", "on");
  for (const JobBuilder& any : {job, JobBuilder(job).with_mpi(1), JobBuilder(job).with_smddp(1),
                                JobBuilder(job).with_torchrun(1)}) {
    EXPECT_THAT(message_of([&] { network_of(any); }), HasSubstr("sees no EFA device"));
  }

  HostFacts facts = a_machine();
  facts.efa = {.devices = {"rdmap0s6"}, .nccl_plugin = "/plugin.so"};
  EXPECT_EQ(network_of(job, facts).efa.nccl_plugin, "/plugin.so");
}

TEST(JobNetwork, TheTypesOfAllGroupsThatTakePartCount) {
  const JobBuilder job = a_job()
                             .with_hosts({"algo-1", "algo-2", "algo-3"})
                             .with_group("a", {"algo-1"}, "ml.p4d.24xlarge")
                             .with_group("b", {"algo-2"}, "ml.p5.48xlarge")
                             .with_group("c", {"algo-3"}, "ml.c5.xlarge")
                             .in_group("a")
                             .on_instance("ml.p4d.24xlarge")
                             .with_mpi(8)
                             .with("sagemaker_distribution_instance_groups", R"(["a","b"])");

  EXPECT_THAT(fabric_instance_types(job, Runner::kMpi),
              ElementsAre("ml.p4d.24xlarge", "ml.p5.48xlarge"));
  EXPECT_TRUE(network_of(job).efa.enabled);
  EXPECT_FALSE(
      network_of(JobBuilder(job).with("sagemaker_distribution_instance_groups", R"(["a","b","c"])"))
          .efa.enabled);
}

}  // namespace
}  // namespace entrypoint
