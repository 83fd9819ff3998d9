// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/exhaustion.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <sys/stat.h>

namespace entrypoint {
namespace {

std::string size_text(std::uintmax_t bytes) {
  constexpr double kKilo = 1000.0;
  double value = static_cast<double>(bytes);
  for (const char* unit : {"bytes", "kB", "MB"}) {
    if (value < kKilo) return fmt::format("{:.3g} {}", value, unit);
    value /= kKilo;
  }
  return fmt::format("{:.1f} GB", value);
}

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

std::vector<FreeSpace> free_space(std::span<const std::filesystem::path> folders) {
  std::vector<FreeSpace> result;
  std::vector<dev_t> seen;
  for (const std::filesystem::path& folder : folders) {
    std::error_code failed;
    const auto space = std::filesystem::space(folder, failed);
    struct stat info {};
    if (failed || stat(folder.c_str(), &info) != 0) continue;
    if (std::ranges::find(seen, info.st_dev) != seen.end()) continue;
    seen.push_back(info.st_dev);
    result.push_back({.folder = folder, .bytes = space.available});
  }
  return result;
}

std::string free_space_text(std::span<const FreeSpace> spaces, std::uintmax_t limit) {
  std::string text;
  for (const FreeSpace& space : spaces) {
    if (space.bytes >= limit) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", space.folder.string(),
                        size_text(space.bytes));
  }
  return text;
}

}  // namespace entrypoint
