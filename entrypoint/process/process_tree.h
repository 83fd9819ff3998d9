// SPDX-License-Identifier: Apache-2.0
// The processes below us, as /proc shows them, and those that still run when the script has ended:
// training in the background of a shell script, above all. As PID 1 or child subreaper we are above
// everything that the job started, daemons included.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace entrypoint {

struct Process {
  pid_t pid = 0;
  pid_t parent = 0;
  bool zombie = false;
};

/// Every process that /proc shows; one that ends while we look may be missing.
std::vector<Process> all_processes();

/// All descendants of `root`, without itself, parents before children. A process that ends while
/// we look may be missing.
std::vector<Process> descendants(pid_t root);

/// The command line of a process; empty when it is gone.
std::vector<std::string> command_line_of(pid_t pid);

/// The same as a line of text; the name of the program where there is no command line, which is so
/// for a moment while a process starts another program: it is waited for, some milliseconds. Empty
/// when the process is gone or a zombie.
std::string command_of(pid_t pid);

/// A process that still runs when the script has ended.
struct LeftProcess {
  pid_t pid = 0;
  std::string command;
};

/// The descendants of `root`, without those in `ours` and what runs below them, without zombies and
/// without the helpers that end by themselves in a moment: Python's resource tracker and fork
/// server, services of trackers. Reads /proc.
std::vector<LeftProcess> left_processes(pid_t root, std::span<const pid_t> ours);

/// The processes of one group, by the same rule, but for its leader.
std::vector<LeftProcess> left_in_group(pid_t leader);

/// One sentence; empty where there is none. Pure.
std::string left_processes_text(std::span<const LeftProcess> processes);

}  // namespace entrypoint
