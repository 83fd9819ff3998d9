// SPDX-License-Identifier: Apache-2.0
// One piece of work for each of many hosts, mostly an ssh to it, some at a time: all at once would
// take longer together than one of them may.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "entrypoint/process/process_runner.h"

namespace entrypoint {

struct HostTask {
  std::string host;
  HelperProcess helper;
  std::chrono::milliseconds limit;  ///< for this one alone, from its start
};

/// As many ssh's as the processors of this machine bear at once.
[[nodiscard]] std::size_t most_ssh_at_once();

/// Runs the tasks in their order, at most `at_once` at a time, and blocks until all have ended or
/// were killed at their limits. Where it `heeds_stop`, a stop signal kills those that run, and the
/// others do not start. Calls `failed` for each that did not succeed, with what it said: nothing
/// where it was killed or did not start.
void run_host_tasks(
    ProcessRunner& processes, const std::vector<HostTask>& tasks, std::size_t at_once,
    bool heeds_stop,
    const std::function<void(const std::string& host, const std::string& reason)>& failed);

}  // namespace entrypoint
