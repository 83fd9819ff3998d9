// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/process_tree.h"

#include <algorithm>
#include <csignal>

#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/process/spawn.h"

namespace entrypoint {
namespace {

/// A shell that lives until the test ends.
class Shell {
 public:
  explicit Shell(const char* text)
      : pid_(spawn({.argv = {"/bin/sh", "-c", text}, .environment = current_environment()})) {}
  ~Shell() {
    kill(-pid_, SIGKILL);
    wait_for(pid_);
  }
  Shell(const Shell&) = delete;
  Shell& operator=(const Shell&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST(ProcessTree, FindsWhatIsBelowWithItsCommand) {
  const Shell shell("exec sleep 600");

  const std::vector<Process> found = descendants(getpid());

  const auto process = std::ranges::find(found, shell.pid(), &Process::pid);
  ASSERT_NE(process, found.end());
  EXPECT_EQ(process->parent, getpid());
}

TEST(ProcessTree, BearsProcessesThatEndWhileItLooks) {
  constexpr int kLooks = 300;
  const Shell first("while :; do /bin/true; done");
  const Shell second("while :; do /bin/true & /bin/true; wait; done");

  for (int look = 0; look < kLooks; ++look) {
    ASSERT_NO_THROW({
      for (const Process& process : descendants(getpid())) command_line_of(process.pid);
    }) << look;
  }
}

}  // namespace
}  // namespace entrypoint
