// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "entrypoint/fabric/efa.h"
#include "entrypoint/fabric/interfaces.h"
#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace entrypoint {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::message_of;

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
  EXPECT_FALSE(decide_efa("local", kNothingSeen, EfaSwitch::kAuto).enabled);
  EXPECT_TRUE(decide_efa("ml.new.type", kDeviceSeen, EfaSwitch::kAuto).enabled);
  EXPECT_FALSE(decide_efa("ml.new.type", kDeviceSeen, EfaSwitch::kAuto).device_rdma);
  EXPECT_THAT(decide_efa("ml.p4d.24xlarge", kDeviceSeen, EfaSwitch::kAuto).warning, IsEmpty());
}

TEST(Efa, NothingIsLostInSilence) {
  const EfaDecision promised = decide_efa("ml.p4d.24xlarge", kNothingSeen, EfaSwitch::kAuto);
  EXPECT_TRUE(promised.enabled);
  EXPECT_THAT(promised.warning, HasSubstr("sees no EFA device"));

  EXPECT_THAT(decide_efa("local", kNothingSeen, EfaSwitch::kOn).warning,
              HasSubstr("SM_LAUNCH_EFA"));
  EXPECT_FALSE(decide_efa("ml.p4d.24xlarge", kDeviceSeen, EfaSwitch::kOff).enabled);
}

TEST(Efa, TheProbeNeverThrows) { EXPECT_NO_THROW(probe_efa()); }

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

  EXPECT_EQ(route_to_host("127.0.0.1", kTimeout), loopback->name);
  EXPECT_TRUE(resolves("localhost", kTimeout));
}

}  // namespace
}  // namespace entrypoint
