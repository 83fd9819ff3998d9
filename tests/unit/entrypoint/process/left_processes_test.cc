// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "entrypoint/process/process_tree.h"
#include "entrypoint/process/spawn.h"

namespace entrypoint {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

/// A process that lives until the test ends.
class Living {
 public:
  explicit Living(std::vector<std::string> argv)
      : pid(spawn({.argv = std::move(argv), .environment = current_environment()})) {}
  ~Living() {
    kill(-pid, SIGKILL);
    wait_for(pid);
  }
  Living(const Living&) = delete;
  Living& operator=(const Living&) = delete;

  const pid_t pid;
};

bool names(const std::vector<LeftProcess>& left, pid_t pid) {
  return std::ranges::any_of(left, [pid](const LeftProcess& one) { return one.pid == pid; });
}

TEST(LeftProcesses, AreThoseThatAreNotOurs) {
  const Living training({"sleep", "600"});
  const Living helper({"sleep", "601"});

  EXPECT_TRUE(names(left_processes(getpid(), {}), training.pid));
  const pid_t ours[] = {training.pid};
  const std::vector<LeftProcess> left = left_processes(getpid(), ours);
  EXPECT_FALSE(names(left, training.pid));
  EXPECT_TRUE(names(left, helper.pid));
  EXPECT_THAT(left_in_group(helper.pid), IsEmpty());
}

/// The command of one process among those that are left.
std::string command_in(const std::vector<LeftProcess>& left, pid_t pid) {
  const auto found = std::ranges::find(left, pid, &LeftProcess::pid);
  return found == left.end() ? "" : found->command;
}

TEST(LeftProcesses, AreNamedByTheirProgramsWhereTheyShowNoCommand) {
  // As while a program is started, but for good: its name alone is known.
  const Living nameless({"bash", "-c", "exec -a '' cat < <(exec sleep 600)"});

  std::string command = "bash";  // until it has become cat
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (command.starts_with("bash") && std::chrono::steady_clock::now() < deadline) {
    command = command_in(left_processes(getpid(), {}), nameless.pid);
  }
  EXPECT_EQ(command, "cat");
}

TEST(LeftProcesses, AreNamedWithTheirCommands) {
  EXPECT_EQ(left_processes_text({}), "");
  const std::vector<LeftProcess> one{{.pid = 123, .command = "python3 work.py"}};
  EXPECT_EQ(left_processes_text(one),
            "the script ended while 1 of its processes still ran and is ended now: python3 work.py "
            "(pid 123); end the script after them (wait), or start training in the foreground");
  const std::vector<LeftProcess> many(7, one.front());
  EXPECT_THAT(left_processes_text(many), HasSubstr("7 of its processes still ran and are ended"));
  EXPECT_THAT(left_processes_text(many), HasSubstr(" and 2 more;"));
}

}  // namespace
}  // namespace entrypoint
