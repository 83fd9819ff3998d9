// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/file.h"

#include <array>
#include <filesystem>
#include <iterator>
#include <optional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

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
