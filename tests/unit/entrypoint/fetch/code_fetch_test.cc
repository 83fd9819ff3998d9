// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/fetch/code_fetch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/unit/opt_ml_layout/temporary_folder.h"
#include "tests/unit/refusal.h"

namespace entrypoint::fetch {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing_support::read_file;
using testing_support::TemporaryFolder;
using testing_support::write_file;

TEST(CodeCopy, TakesFilesModesAndTimesAndFollowsLinks) {
  const TemporaryFolder folder;
  const fs::path from = folder.path() / "from";
  const fs::path to = folder.path() / "to";
  write_file(from / "d/run.sh", "#!/bin/sh");
  fs::permissions(from / "d/run.sh", fs::perms(0751));
  fs::create_directory_symlink("d", from / "link");
  fs::create_directory(to);

  EXPECT_THAT(copy_folder(from, to), IsEmpty());

  EXPECT_EQ(fs::status(to / "d/run.sh").permissions(), fs::perms(0751));
  EXPECT_EQ(fs::last_write_time(to / "d/run.sh"), fs::last_write_time(from / "d/run.sh"));
  EXPECT_FALSE(fs::is_symlink(to / "link"));
  EXPECT_EQ(read_file(to / "link/run.sh"), "#!/bin/sh");
}

TEST(CodeCopy, LeavesOutWhatCannotBeCopied) {
  const TemporaryFolder folder;
  const fs::path from = folder.path() / "from";
  write_file(from / "a", "");
  fs::create_symlink("nowhere", from / "dangling");
  fs::create_symlink(".", from / "self");
  ASSERT_EQ(mkfifo((from / "pipe").c_str(), 0600), 0);

  const auto warnings = copy_folder(from, folder.path() / "to");

  EXPECT_TRUE(fs::exists(folder.path() / "to/a"));
  EXPECT_FALSE(fs::exists(folder.path() / "to/pipe"));
  EXPECT_THAT(warnings,
              ::testing::Contains(HasSubstr("dangling: left out: a link that leads nowhere")));
  EXPECT_THAT(warnings, ::testing::Contains(HasSubstr("pipe: left out: a device, FIFO or socket")));
}

TEST(CodeCopy, AnEmptiedFolderStays) {
  const TemporaryFolder folder;
  write_file(folder.path() / "code/a/b", "");

  empty_folder(folder.path() / "code");

  EXPECT_TRUE(fs::is_empty(folder.path() / "code"));
}

TEST(CodeCopy, EmptiesNoFolderThatALinkLeadsTo) {
  const TemporaryFolder folder;
  write_file(folder.path() / "src/train.py", "");
  fs::create_directory_symlink(folder.path() / "src", folder.path() / "code");

  EXPECT_THAT(smp::refusal([&] { empty_folder(folder.path() / "code"); }),
              HasSubstr("would be removed"));

  EXPECT_TRUE(fs::exists(folder.path() / "src/train.py"));
}

}  // namespace
}  // namespace entrypoint::fetch
