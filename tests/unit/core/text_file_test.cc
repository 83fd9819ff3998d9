// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/text_file.h"

#include <filesystem>
#include <iterator>

#include <gtest/gtest.h>

#include "smp_runtime/core/error.h"
#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp {
namespace {

namespace fs = std::filesystem;
using testing_support::TemporaryFolder;

TEST(TextFile, IsReplacedWithItsMode) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "key";
  replace_text(file, "first and longer", kForOwner);

  replace_text(file, "second", kForOwner);

  EXPECT_EQ(read_text(file), "second");
  EXPECT_EQ(fs::status(file).permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(TextFile, ThatCannotBeReplacedLeavesNoDraft) {
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "key" / "inside");

  EXPECT_THROW(replace_text(folder.path() / "key", "text"), HostError);

  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(TextFile, ThatCannotBeReadIsEmpty) {
  const TemporaryFolder folder;

  EXPECT_EQ(read_text(folder.path()), "");
  EXPECT_EQ(read_text(folder.path() / "missing"), "");
}

}  // namespace
}  // namespace smp
