// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/core/parent_only_file.h"

#include <array>
#include <optional>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

namespace smp {
namespace {

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
