// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/process_tree.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "smp_runtime/core/file.h"
#include "smp_runtime/core/text.h"

namespace entrypoint {
namespace {

std::optional<Process> read_process(pid_t pid) {
  // "PID (NAME) STATE PARENT …"; the name may hold blanks and brackets, so look from its end.
  const std::string stat = smp::read_text("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream rest(stat.substr(name_end + 1));
  char state = 0;
  Process process{.pid = pid};
  if (!(rest >> state >> process.parent)) return std::nullopt;
  process.zombie = state == 'Z';
  return process;
}

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

std::vector<Process> all_processes() {
  std::vector<Process> result;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    const auto pid = smp::parse_number<pid_t>(name);
    if (!pid) continue;
    if (const auto process = read_process(*pid)) result.push_back(*process);
  }
  return result;
}

std::vector<Process> descendants(pid_t root) {
  const std::vector<Process> all = all_processes();
  std::vector<Process> result;
  std::vector<pid_t> generation = {root};
  while (!generation.empty()) {
    std::vector<pid_t> next;
    for (const Process& process : all) {
      if (std::ranges::find(generation, process.parent) == generation.end()) continue;
      result.push_back(process);
      next.push_back(process.pid);
    }
    generation = std::move(next);
  }
  return result;
}

std::vector<std::string> command_line_of(pid_t pid) {
  return smp::split_terminated(smp::read_text("/proc/" + std::to_string(pid) + "/cmdline"), '\0');
}

std::string command_of(pid_t pid) {
  constexpr int kLooks = 20;
  for (int look = 0; look < kLooks; ++look) {
    std::string command = fmt::to_string(fmt::join(command_line_of(pid), " "));
    if (!command.empty()) return command;
    const auto process = read_process(pid);
    if (!process || process->zombie) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::string name = smp::read_text("/proc/" + std::to_string(pid) + "/comm");
  if (name.ends_with('\n')) name.pop_back();
  return name;
}

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
