// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/left_processes.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "entrypoint/process/process_tree.h"

namespace entrypoint {
namespace {

bool ends_by_itself(std::string_view command) {
  constexpr std::string_view kHelpers[] = {"multiprocessing.resource_tracker",
                                           "multiprocessing.forkserver",
                                           "multiprocessing.spawn",
                                           "wandb-core",
                                           "wandb.sdk.service",
                                           "gpu_stats"};
  return std::ranges::any_of(kHelpers, [command](std::string_view helper) {
    return command.find(helper) != std::string_view::npos;
  });
}

bool contains(std::span<const pid_t> pids, pid_t pid) {
  return std::ranges::find(pids, pid) != pids.end();
}

void add(std::vector<LeftProcess>& left, pid_t pid) {
  std::string command = command_of(pid);
  if (!command.empty() && !ends_by_itself(command)) {
    left.push_back({.pid = pid, .command = std::move(command)});
  }
}

}  // namespace

std::vector<LeftProcess> left_processes(pid_t root, std::span<const pid_t> ours) {
  std::vector<pid_t> known(ours.begin(), ours.end());
  std::vector<LeftProcess> left;
  for (const Process& process : descendants(root)) {  // parents before children
    if (contains(known, process.pid) || contains(known, process.parent)) {
      known.push_back(process.pid);
    } else if (!process.zombie) {
      add(left, process.pid);
    }
  }
  return left;
}

std::vector<LeftProcess> left_in_group(pid_t leader) {
  std::vector<LeftProcess> left;
  for (const Process& process : all_processes()) {
    if (process.pid != leader && !process.zombie && getpgid(process.pid) == leader) {
      add(left, process.pid);
    }
  }
  return left;
}

std::string left_processes_text(std::span<const LeftProcess> processes) {
  constexpr std::size_t kNamed = 5;
  constexpr std::size_t kCommandBytes = 200;
  if (processes.empty()) return {};
  std::vector<std::string> names;
  for (const LeftProcess& one : processes.first(std::min(processes.size(), kNamed))) {
    names.push_back(fmt::format("{} (pid {})", one.command.substr(0, kCommandBytes), one.pid));
  }
  const std::size_t more = processes.size() - names.size();
  return fmt::format(
      "the script ended while {} of its processes still ran and {} ended now: {}{}; end the script "
      "after them (wait), or start training in the foreground",
      processes.size(), processes.size() == 1 ? "is" : "are", fmt::join(names, ", "),
      more == 0 ? "" : fmt::format(" and {} more", more));
}

}  // namespace entrypoint
