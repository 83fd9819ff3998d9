// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/file.h"

#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <optional>
#include <regex>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "smp_runtime/core/error.h"
#include "smp_runtime/core/host.h"
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

mode_t mode_of(const fs::path& file) {
  struct stat info {};
  EXPECT_EQ(::lstat(file.c_str(), &info), 0) << file;
  return info.st_mode & 0777U;
}

TEST(TextFile, OfTheOwnerIsTheOwnersWhateverWasThere) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "key";
  const fs::path known = file.string() + fmt::format(".{}-{}.part", host_name(), ::getpid());
  for (const fs::path& open : {file, known}) {
    testing_support::write_file(open, "open to all");
    fs::permissions(open, fs::perms::all);
  }

  replace_text(file, "secret", kForOwner);

  EXPECT_EQ(mode_of(file), kForOwner);
}

TEST(TextFile, MeetsNoLinkThatWaitsForItsDraft) {
  const TemporaryFolder folder;
  const fs::path file = folder.path() / "key";
  testing_support::write_file(folder.path() / "victim", "mine");
  fs::create_symlink("victim", file.string() + fmt::format(".{}-{}.part", host_name(), ::getpid()));

  replace_text(file, "text", kForOwner);

  EXPECT_EQ(read_text(folder.path() / "victim"), "mine");
  EXPECT_EQ(read_text(file), "text");
}

TEST(Draft, HasANameOfItsOwnEachTime) {
  const TemporaryFolder folder;
  const Draft one = open_draft(folder.path() / "file", "part", kForOwner);
  const Draft other = open_draft(folder.path() / "file", "part");

  ASSERT_TRUE(one.file.is_open() && other.file.is_open());
  EXPECT_NE(one.path, other.path);
  EXPECT_EQ(one.path.parent_path(), folder.path());
  EXPECT_TRUE(
      std::regex_match(one.path.filename().string(), std::regex(R"(\.file\.[0-9a-f]{16}\.part)")));
  EXPECT_EQ(mode_of(one.path), kForOwner);
}

TEST(Draft, ThatCannotBeMadeIsNotOpen) {
  const TemporaryFolder folder;

  EXPECT_FALSE(open_draft(folder.path() / "none" / "file", "part").file.is_open());
  EXPECT_EQ(errno, ENOENT);
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

/// In a forked child: what it reads from the file. Its status is 0 for the end of /dev/null, 1 for
/// nothing yet, 2 for no file.
int what_a_child_reads(int file) {
  const pid_t child = fork();
  if (child == 0) {
    char byte = 0;
    pollfd ready{.fd = file, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, 0) == 0) _exit(1);
    _exit(read(file, &byte, 1) == 0 ? 0 : 2);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

TEST(ParentOnlyFile, IsGivenUpByChildrenAloneAndItsNumberStaysTaken) {
  std::array<int, 2> ends{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  std::optional<ParentOnlyFile> mine(ends[0]);

  EXPECT_EQ(what_a_child_reads(ends[0]), 0);

  ASSERT_EQ(write(ends[1], "x", 1), 1);  // the parent's own goes on
  char byte = 0;
  EXPECT_EQ(read(ends[0], &byte, 1), 1);
  mine.reset();
  EXPECT_EQ(what_a_child_reads(ends[0]), 1) << "nobody's any more, and shared as any file";
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace smp
