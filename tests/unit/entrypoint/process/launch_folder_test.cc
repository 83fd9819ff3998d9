// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/launch_folder.h"

#include <chrono>
#include <iterator>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

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

TEST(LaunchFolder, RemovesThoseWhoseOwnerWasKilled) {
  const LaunchFolder place;
  const std::string there = place.path();
  const pid_t child = fork();
  if (child == 0) {
    const LaunchFolder left({there.c_str()});
    left.write("state", "x");
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  const LaunchFolder lives({there.c_str()});
  const auto age_all = [&] {
    for (const auto& entry : std::filesystem::directory_iterator(there)) {
      last_write_time(entry, entry.last_write_time() - std::chrono::hours(1));
    }
  };
  const auto count = [&] { return std::distance(std::filesystem::directory_iterator(there), {}); };

  LaunchFolder::remove_abandoned(there);
  EXPECT_EQ(count(), 2) << "one that is new may be about to be held";
  age_all();
  LaunchFolder::remove_abandoned(there);

  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(std::filesystem::exists(lives.path()));
}

}  // namespace
}  // namespace entrypoint
