// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/network/efa.h"
#include "entrypoint/network/interfaces.h"
#include "entrypoint/network/reachability.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;
using testing_support::TemporaryFolder;

const EfaProbe kNothingSeen;
const EfaProbe kDeviceSeen{.devices = {"rdmap0s6"}};

TEST(Efa, TheTableKnowsTheReferencesListsByExactType) {
  for (const char* type :
       {"ml.g4dn.8xlarge", "ml.g4dn.12xlarge", "ml.g5.48xlarge", "ml.p3dn.24xlarge"}) {
    EXPECT_TRUE(traits_of_instance_type(type).efa) << type;
    EXPECT_FALSE(traits_of_instance_type(type).device_rdma) << type;
  }
  for (const char* type :
       {"ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge", "ml.p5e.48xlarge",
        "ml.trn1.32xlarge", "ml.p6e-gb200.36xlarge", "ml.p5en.48xlarge"}) {
    EXPECT_TRUE(traits_of_instance_type(type).efa) << type;
    EXPECT_TRUE(traits_of_instance_type(type).device_rdma) << type;
  }
  for (const char* type : {"local", "ml.p4d", "ml.g5.xlarge", "", "p4d.24xlarge"}) {
    EXPECT_FALSE(traits_of_instance_type(type).efa) << type;
  }
}

TEST(Efa, AutomaticFollowsTableAndProbe) {
  EXPECT_FALSE(decide_efa({"local"}, kNothingSeen, EfaSwitch::kAuto).enabled);
  EXPECT_TRUE(decide_efa({"ml.new.type"}, kDeviceSeen, EfaSwitch::kAuto).enabled);
  EXPECT_FALSE(decide_efa({"ml.new.type"}, kDeviceSeen, EfaSwitch::kAuto).device_rdma);
  EXPECT_FALSE(decide_efa({"ml.p4d.24xlarge"}, kDeviceSeen, EfaSwitch::kAuto).problem);
  // libfabric alone suffices, too: some containers hide /sys.
  EXPECT_TRUE(decide_efa({"ml.new.type"}, {.provider = true}, EfaSwitch::kAuto).enabled);
}

TEST(Efa, NothingIsLostInSilence) {
  const EfaDecision promised = decide_efa({"ml.p4d.24xlarge"}, kNothingSeen, EfaSwitch::kAuto);
  EXPECT_TRUE(promised.enabled);
  ASSERT_TRUE(promised.problem);
  EXPECT_EQ(promised.problem->loss, EfaLoss::kAll);
  EXPECT_THAT(promised.problem->text(), HasSubstr("sees no EFA device"));
  EXPECT_FALSE(decide_efa({"ml.p4d.24xlarge"}, kDeviceSeen, EfaSwitch::kOff).enabled);

  const EfaDecision unknown = decide_efa(
      {"ml.p4d.24xlarge"}, {.devices = {"rdmap0s6"}, .provider = false}, EfaSwitch::kAuto);
  ASSERT_TRUE(unknown.problem);
  EXPECT_EQ(unknown.problem->loss, EfaLoss::kAll);
  EXPECT_THAT(unknown.problem->text(), HasSubstr("has no provider for it"));
}

TEST(Efa, NcclIsGivenItsPluginOrSaidToGoWithout) {
  EfaProbe probe = kDeviceSeen;
  probe.has_gpus = true;
  const EfaDecision without = decide_efa({"ml.p4d.24xlarge"}, probe, EfaSwitch::kOn);
  ASSERT_TRUE(without.problem);
  EXPECT_EQ(without.problem->loss, EfaLoss::kNccl);
  EXPECT_THAT(without.problem->text(), HasSubstr("NCCL will use sockets"));
  EXPECT_THAT(without.problem->text(), HasSubstr("docker/efa/README.md"));
  EXPECT_THAT(without.nccl_plugin, IsEmpty());

  probe.nccl_plugin = "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so";
  const EfaDecision with = decide_efa({"ml.p4d.24xlarge"}, probe, EfaSwitch::kAuto);
  EXPECT_FALSE(with.problem);
  EXPECT_EQ(with.nccl_plugin, probe.nccl_plugin);
  EXPECT_EQ(with.reason,
            "EFA is on: devices rdmap0s6; NCCL's plugin: "
            "/opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so");

  // Neither where EFA is off, nor where no device is.
  EXPECT_THAT(decide_efa({"ml.p4d.24xlarge"}, probe, EfaSwitch::kOff).nccl_plugin, IsEmpty());
  probe.devices.clear();
  EXPECT_THAT(decide_efa({"ml.p4d.24xlarge"}, probe, EfaSwitch::kAuto).nccl_plugin, IsEmpty());
}

TEST(Efa, WhatIsAskedForAndAbsentIsRefusedWithWhatIsThere) {
  const EfaDecision bare = decide_efa({"local"}, kNothingSeen, EfaSwitch::kOn);
  ASSERT_TRUE(bare.problem);
  EXPECT_EQ(bare.problem->loss, EfaLoss::kRefused);
  EXPECT_EQ(bare.problem->text(),
            "SM_LAUNCH_EFA=on, but this container sees no EFA device; /sys/class/infiniband holds: "
            "none; fi_info is not here or gave no answer; pass the devices /dev/infiniband/* into "
            "the container, or set SM_LAUNCH_EFA=off");

  const EfaDecision others = decide_efa(
      {"ml.p4d.24xlarge"},
      {.other_devices = {"mlx5_0", "mlx5_1"}, .provider = false, .providers = {"tcp", "shm"}},
      EfaSwitch::kOn);
  ASSERT_TRUE(others.problem);
  EXPECT_EQ(others.problem->loss, EfaLoss::kRefused);
  EXPECT_THAT(others.problem->finding, HasSubstr("/sys/class/infiniband holds: mlx5_0, mlx5_1; "
                                                 "libfabric offers: tcp, shm"));

  const EfaDecision unknown =
      decide_efa({"local"}, {.devices = {"rdmap0s6"}, .provider = false, .providers = {"tcp"}},
                 EfaSwitch::kOn);
  ASSERT_TRUE(unknown.problem);
  EXPECT_EQ(unknown.problem->loss, EfaLoss::kRefused);
  EXPECT_THAT(unknown.problem->finding, HasSubstr("the devices rdmap0s6 are there"));
  EXPECT_THAT(unknown.problem->finding, HasSubstr("libfabric offers: tcp"));

  EXPECT_FALSE(decide_efa({"local"}, kDeviceSeen, EfaSwitch::kOn).problem);
}

TEST(Efa, HostsOfSeveralTypesUseWhatAllOfThemHave) {
  const EfaDecision mixed =
      decide_efa({"ml.p4d.24xlarge", "ml.c5.xlarge"}, kDeviceSeen, EfaSwitch::kAuto);
  EXPECT_FALSE(mixed.enabled);
  ASSERT_TRUE(mixed.problem);
  EXPECT_THAT(mixed.problem->text(), HasSubstr("not all of ml.p4d.24xlarge, ml.c5.xlarge"));
  // The other side decides alike, although it sees no device.
  EXPECT_FALSE(
      decide_efa({"ml.c5.xlarge", "ml.p4d.24xlarge"}, kNothingSeen, EfaSwitch::kAuto).enabled);

  const EfaDecision both =
      decide_efa({"ml.p4d.24xlarge", "ml.g5.48xlarge"}, kDeviceSeen, EfaSwitch::kAuto);
  EXPECT_TRUE(both.enabled);
  EXPECT_FALSE(both.device_rdma);
}

TEST(Efa, LibfabricIsAskedOnlyWhereEfaIsExpected) {
  const auto asked = [](const EfaProbe& probe, const char* type, EfaSwitch wanted) {
    return should_ask_libfabric(probe, {type}, wanted);
  };

  EXPECT_FALSE(asked(kNothingSeen, "local", EfaSwitch::kAuto));
  EXPECT_FALSE(asked(kDeviceSeen, "ml.p4d.24xlarge", EfaSwitch::kOff));
  EXPECT_TRUE(asked(kNothingSeen, "local", EfaSwitch::kOn));
  EXPECT_TRUE(asked(kNothingSeen, "ml.p4d.24xlarge", EfaSwitch::kAuto));
  EXPECT_TRUE(asked({.other_devices = {"mlx5_0"}}, "ml.new.type", EfaSwitch::kAuto));
}

TEST(Efa, TheAnswerOfFiInfoIsRead) {
  EXPECT_THAT(listed_providers("provider: efa\n    fabric: efa\n    domain: rdmap0s6-rdm\n"
                               "provider: efa;ofi_rxd\n    fabric: efa\n"),
              ElementsAre("efa"));
  EXPECT_THAT(listed_providers("provider: tcp;ofi_rxm\n    fabric: 10.0.0.0/8\nprovider: shm"),
              ElementsAre("tcp", "shm"));
  EXPECT_THAT(listed_providers("fi_getinfo: -61 (No data available)\n"), IsEmpty());
}

TEST(Efa, DevicesAreTakenForEfaByTheirDriver) {
  const TemporaryFolder folder;
  const auto add = [&](const std::string& device, const std::string& driver) {
    std::filesystem::create_directories(folder.path() / device / "device");
    if (driver.empty()) return;
    std::filesystem::create_symlink("../../../bus/pci/drivers/" + driver,
                                    folder.path() / device / "device" / "driver");
  };
  add("rdmap1s0", "efa");
  add("rdmap0s6", "efa");
  EXPECT_THAT(probe_efa(folder.path()).other_devices, IsEmpty());
  add("mlx5_0", "mlx5_core");
  add("odd", "");

  const EfaProbe probe = probe_efa(folder.path());

  EXPECT_THAT(probe.devices, ElementsAre("rdmap0s6", "rdmap1s0"));
  EXPECT_THAT(probe.other_devices, ElementsAre("mlx5_0", "odd"));
  EXPECT_THAT(probe_efa(folder.path() / "none").devices, IsEmpty());
}

TEST(Efa, TheProbeNeverThrows) { EXPECT_NO_THROW(probe_efa()); }

TEST(Efa, NcclsPluginIsFoundOnTheLibraryPath) {
  const TemporaryFolder folder;
  const std::string path = "/no/such/folder::" + folder.path().string();
  std::ofstream(folder.path() / "libnccl.so.2") << "";
  EXPECT_EQ(find_nccl_plugin(path), "");

  std::ofstream(folder.path() / "libnccl-net-ofi.so") << "";

  EXPECT_EQ(find_nccl_plugin(path), folder.path() / "libnccl-net-ofi.so");
}

TEST(Efa, OfSeveralPluginsTheOneForEfaIsTaken) {
  const TemporaryFolder folder;
  const auto found = [&] { return find_nccl_plugin(folder.path().string()).filename(); };
  std::filesystem::create_symlink("gone", folder.path() / "libnccl-net-ofi.so");
  std::ofstream(folder.path() / "libnccl-net.so.0") << "";
  std::ofstream(folder.path() / "libnccl-net-another.so") << "";
  EXPECT_EQ(found(), "libnccl-net-another.so");

  std::ofstream(folder.path() / "libnccl-net.so") << "";
  EXPECT_EQ(found(), "libnccl-net.so");

  std::ofstream(folder.path() / "gone") << "";
  EXPECT_EQ(found(), "libnccl-net-ofi.so");
}

InterfaceQuestion a_question() {
  return {.current_host = "algo-1",
          .configured = "eth0",
          .interfaces = {{.name = "lo", .loopback = true, .addresses = {"127.0.0.1"}},
                         {.name = "eth0", .addresses = {"10.0.0.2"}},
                         {.name = "eth1", .addresses = {"10.1.0.2"}}},
          .several_hosts = true};
}

TEST(Interfaces, TheConfiguredOneIsTakenWhenItIsUsable) {
  const InterfaceChoice choice = choose_interface(a_question());

  EXPECT_EQ(choice.name, "eth0");
  EXPECT_THAT(choice.warning, IsEmpty());
}

TEST(Interfaces, AMissingOneIsReplacedByTheRoute) {
  InterfaceQuestion question = a_question();
  question.configured = "ethwe";
  question.route = "eth1";

  const InterfaceChoice choice = choose_interface(question);

  EXPECT_EQ(choice.name, "eth1");
  EXPECT_EQ(
      choice.warning,
      "network interface \"ethwe\" of resourceconfig.json does not exist on algo-1; eth1 leads "
      "to the other hosts and is taken");
}

TEST(Interfaces, LinkLocalAddressesAreNeverTaken) {
  InterfaceQuestion question = a_question();
  question.interfaces[1].addresses = {"169.254.3.4"};

  const InterfaceChoice choice = choose_interface(question);

  EXPECT_EQ(choice.name, "eth1");
  EXPECT_THAT(choice.warning, HasSubstr("has only link-local addresses"));
}

TEST(Interfaces, OneWithIpv6AloneIsTakenUnlessTheOthersAreElsewhere) {
  InterfaceQuestion question = a_question();
  question.interfaces[1].addresses = {"fe80::2%eth0", "fd77::2"};
  constexpr const char* kFound =
      "network interface \"eth0\" of resourceconfig.json has addresses of IPv6 alone on algo-1";
  for (const bool several_hosts : {true, false}) {
    question.several_hosts = several_hosts;
    EXPECT_EQ(choose_interface(question).name, "eth0");
    EXPECT_EQ(choose_interface(question).note, kFound);
  }
  question.several_hosts = true;
  question.route = "eth0";
  EXPECT_EQ(choose_interface(question).name, "eth0");

  question.route = "eth1";

  EXPECT_EQ(choose_interface(question).name, "eth1");
  EXPECT_EQ(choose_interface(question).warning,
            std::string(kFound) + "; eth1 leads to the other hosts and is taken");
}

TEST(Interfaces, LinkLocalAddressesOfIpv6AreNoneEither) {
  InterfaceQuestion question = a_question();
  for (const char* address : {"fe80::1", "fe9f::1%eth0", "feaf::1", "febf::1"}) {
    question.interfaces[1].addresses = {address};
    EXPECT_THAT(choose_interface(question).warning, HasSubstr("has only link-local addresses"));
  }
}

TEST(Interfaces, AnInterfaceOfIpv4IsPickedBeforeOthers) {
  InterfaceQuestion question = a_question();
  question.configured = "ethwe";
  question.interfaces[2].addresses = {"fd88::2"};

  EXPECT_EQ(choose_interface(question).name, "eth0");
}

TEST(Interfaces, ServersListenAtIpv4WhereThereIsAny) {
  const auto listened = [](std::vector<std::string> addresses) {
    return Interface{.name = "eth0", .addresses = std::move(addresses)}.listen_addresses();
  };

  EXPECT_THAT(listened({"10.0.0.2", "169.254.1.1", "fd77::2"}), ElementsAre("10.0.0.2"));
  EXPECT_THAT(listened({"fe80::1%eth0", "fd77::2", "fd77::3"}), ElementsAre("fd77::2", "fd77::3"));
}

TEST(Interfaces, AnAmbiguousChoiceIsAnErrorThatListsThem) {
  InterfaceQuestion question = a_question();
  question.configured = "ethwe";
  question.route = "lo";

  EXPECT_THAT(message_of([&] { choose_interface(question); }),
              HasSubstr("lo (127.0.0.1), eth0 (10.0.0.2), eth1 (10.1.0.2)"));
  question.interfaces.clear();
  EXPECT_THAT(message_of([&] { choose_interface(question); }), HasSubstr("among: none"));
}

TEST(Interfaces, OneHostNamesNoneWhenTheConfiguredOneIsMissing) {
  InterfaceQuestion question = a_question();
  question.configured = "ethwe";
  question.several_hosts = false;

  EXPECT_EQ(choose_interface(question).name, "");
}

TEST(Interfaces, TheLoopbackOfThisMachineIsListed) {
  const auto interfaces = list_interfaces();

  EXPECT_TRUE(std::ranges::any_of(interfaces, &Interface::loopback));
}

TEST(Interfaces, TheRouteToThisMachineIsItsLoopback) {
  constexpr std::chrono::seconds kTimeout(10);
  const auto interfaces = list_interfaces();
  const auto loopback = std::ranges::find(interfaces, true, &Interface::loopback);
  ASSERT_NE(loopback, interfaces.end());

  EXPECT_EQ(NameLookup("127.0.0.1").route(kTimeout), loopback->name);
  EXPECT_TRUE(NameLookup("localhost").resolves(kTimeout));
}

}  // namespace
}  // namespace entrypoint
