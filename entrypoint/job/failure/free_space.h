// SPDX-License-Identifier: Apache-2.0
// Whether a disk is full: scripts die of that in ways that do not say so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace entrypoint {

/// Below this a folder counts as full. [bytes]
inline constexpr std::uintmax_t kFullBelow = std::uintmax_t{64} * 1024 * 1024;

struct FreeSpace {
  std::filesystem::path folder;
  std::uintmax_t bytes = 0;  ///< that we may still write
};

/// Of each folder that can be asked; folders on one file system count once.
std::vector<FreeSpace> free_space(std::span<const std::filesystem::path> folders);

/// "/opt/ml 1.5 GB, /tmp 20 MB"; only those below `limit`. Empty: none is. Pure.
std::string free_space_text(std::span<const FreeSpace> spaces, std::uintmax_t limit);

}  // namespace entrypoint
