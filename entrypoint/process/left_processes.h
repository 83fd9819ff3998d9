// SPDX-License-Identifier: Apache-2.0
// Processes that still run when the script has ended, and are ended with it: training in the
// background of a shell script, above all.
#pragma once

#include <span>
#include <string>
#include <vector>

#include <sys/types.h>

namespace entrypoint {

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
