// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/transport/fabric/network_address.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/interfaces.h"
#include "tests/unit/refusal.h"

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

}  // namespace
}  // namespace smp::transport
