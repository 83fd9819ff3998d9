// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/planner/instance_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"

namespace smp::planner {
namespace {

TEST(InstanceTable, EveryTypeHasACardAndLinks) {
  for (const InstanceType& type : instance_types()) {
    const Machines machines = machines_of(type.name, 2);

    EXPECT_EQ(machines.ranks(), 2 * type.cards) << type.name;
    EXPECT_NO_THROW(check_machines(machines)) << type.name;
    EXPECT_FALSE(machines.is_measured);
  }
}

TEST(InstanceTable, APrefixOfTheServiceIsLeftOut) {
  EXPECT_EQ(machines_of("ml.p4d.24xlarge", 1).device.name, "A100-40GB");
  EXPECT_EQ(machines_of("p5e.48xlarge", 1).device.name, "H200");
}

TEST(InstanceTable, UnknownTypesNameNearOnes) {
  try {
    machines_of("ml.p4d.12xlarge", 1);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean ml.p4d.24xlarge?"));
  }
}

TEST(InstanceTable, HostsAreAtLeastOne) {
  EXPECT_THROW(check_machines(machines_of("p4d.24xlarge", 0)), ConfigError);
}

}  // namespace
}  // namespace smp::planner
