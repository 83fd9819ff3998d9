// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/memory_events.h"

#include <fstream>
#include <sstream>
#include <string>

namespace entrypoint {
namespace {

std::optional<long> counter(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string key;
  long value = 0;
  while (file >> key >> value) {
    if (key == "oom_kill") return value;
  }
  return std::nullopt;
}

}  // namespace

std::optional<long> oom_kills(const std::filesystem::path& proc,
                              const std::filesystem::path& cgroups) {
  // Lines are ID:CONTROLLERS:PATH; v2 has the one line "0::PATH". Inside a container the path is
  // often that of the machine, so the root of what is mounted is tried as well.
  std::ifstream membership(proc / "self" / "cgroup");
  std::string line;
  while (std::getline(membership, line)) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    const std::string relative = path.starts_with('/') ? path.substr(1) : path;
    if (controllers.empty()) {
      if (const auto value = counter(cgroups / relative / "memory.events")) return value;
      if (const auto value = counter(cgroups / "memory.events")) return value;
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      if (const auto value = counter(cgroups / "memory" / relative / "memory.oom_control")) {
        return value;
      }
      if (const auto value = counter(cgroups / "memory" / "memory.oom_control")) return value;
    }
  }
  return std::nullopt;
}

}  // namespace entrypoint
