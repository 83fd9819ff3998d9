// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/host.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace smp {
namespace {

TEST(NetworkInterfaces, HoldTheLoopback) {
  const std::vector<NetworkInterface> interfaces = network_interfaces();
  const auto loopback = std::ranges::find(interfaces, true, &NetworkInterface::loopback);
  ASSERT_NE(loopback, interfaces.end());

  std::vector<std::string> addresses;
  for (const tcp::Address& address : loopback->addresses) addresses.push_back(address.text());

  EXPECT_NE(loopback->name, "");
  EXPECT_THAT(addresses, testing::Contains("127.0.0.1"));
}

TEST(NetworkInterfaces, TheLoopbackHasTheSourceAddressTowardsItself) {
  const auto source = source_address(tcp::resolve("127.0.0.1", 9).at(0));

  ASSERT_TRUE(source.has_value());
  EXPECT_EQ(source->text(), "127.0.0.1");
}

}  // namespace
}  // namespace smp
