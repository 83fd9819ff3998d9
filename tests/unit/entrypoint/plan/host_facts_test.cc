// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/plan/host_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace entrypoint {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

TEST(GpuDriver, OlderThanTorchNeedsIsNamedWithTheRemedy) {
  EXPECT_THAT(driver_warning("550.54.15", "2.11.0+cu130"),
              Optional(HasSubstr("NVIDIA driver 550.54.15 is older than CUDA 13.0 of torch "
                                 "2.11.0+cu130 needs (580)")));
}

TEST(GpuDriver, FamilyOfTheReleaseOrNewerWillDo) {
  EXPECT_EQ(driver_warning("580.65.06", "2.11.0+cu130"), std::nullopt);
  EXPECT_EQ(driver_warning("590.1", "2.11.0+cu130"), std::nullopt);
  EXPECT_EQ(driver_warning("525.60", "2.4.0+cu121"), std::nullopt);
}

TEST(GpuDriver, NothingIsSaidOfWhatIsUnknown) {
  EXPECT_EQ(driver_warning("", "2.11.0+cu130"), std::nullopt) << "no driver";
  EXPECT_EQ(driver_warning("550.54.15", "2.11.0+cpu"), std::nullopt);
  EXPECT_EQ(driver_warning("550.54.15", ""), std::nullopt) << "no torch";
  EXPECT_EQ(driver_warning("550.54.15", "2.99.0+cu990"), std::nullopt) << "no row in the table";
}

}  // namespace
}  // namespace entrypoint
