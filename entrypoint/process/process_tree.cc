// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/process/process_tree.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <sstream>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

}  // namespace entrypoint
