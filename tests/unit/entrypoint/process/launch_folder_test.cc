// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/launch_folder.h"

#include <gtest/gtest.h>

namespace entrypoint {
namespace {

TEST(LaunchFolder, IsPrivateAndGoesWithItsOwner) {
  std::filesystem::path path;
  {
    const LaunchFolder folder;
    path = folder.path();
    const auto file = folder.write("secret", "x");
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms::owner_all);
    EXPECT_EQ(std::filesystem::status(file).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace entrypoint
