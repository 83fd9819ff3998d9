// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/host.h"
#include "smp_runtime/transport/fabric/network.h"
#include "smp_runtime/transport/host_identity.h"
#include "tests/unit/refusal.h"
#include "tests/unit/transport/store_of_threads.h"

namespace smp::transport {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(NetworkAddress, IsOfTheInterfaceThatIsNamed) {
  const std::vector<NetworkInterface> interfaces = network_interfaces();
  const auto loopback = std::ranges::find(interfaces, true, &NetworkInterface::loopback);
  ASSERT_NE(loopback, interfaces.end());

  EXPECT_EQ(network_address(loopback->name, ""), "127.0.0.1");
}

TEST(NetworkAddress, AnInterfaceThatIsNotThereIsRefusedWithThoseThatAre) {
  EXPECT_THAT(refusal([] { network_address("nowhere0", ""); }),
              AllOf(HasSubstr("no interface nowhere0 is up; there are: "), HasSubstr("127.0.0.1")));
}

/// At which address the first of two hosts can be reached, whose only network is the loopback; the
/// other one tells its own.
std::string address_beside(const std::string& other_network, const std::string& other_address) {
  StoreOfThreads store;
  store.set("addresses/1", other_network + "\n" + other_address);
  const Network network{.interface = "lo"};
  return settings_between(store, {.host = 0, .hosts = 2, .local = 0}, network,
                          WaitLimit::after(std::chrono::seconds(10), "test"))
      .address;
}

TEST(SettingsBetweenHosts, TakeNoAddressThatAHostOfAnotherNetworkHasToo) {
  EXPECT_EQ(address_beside("elsewhere", "10.0.0.9"), "127.0.0.1");
  EXPECT_EQ(address_beside(network_identity(), "127.0.0.1"), "127.0.0.1");

  EXPECT_THAT(refusal([] { address_beside("elsewhere", "127.0.0.1\n::1"); }),
              AllOf(HasSubstr("another host of the group has the address 127.0.0.1"),
                    HasSubstr("set SMDDP_INTERFACE to the interface"), HasSubstr("there are: lo")));
}

}  // namespace
}  // namespace smp::transport
