// SPDX-License-Identifier: Apache-2.0
#include "entrypoint/job/failure/free_space.h"

#include <algorithm>

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

}  // namespace

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
