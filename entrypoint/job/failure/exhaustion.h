// SPDX-License-Identifier: Apache-2.0
// Disks that are full and kills for memory: programs die of the former in ways that do not say so,
// and a SIGKILL alone does not tell of the latter.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace entrypoint {

/// Number of times that the kernel killed a process of this container for memory, from cgroup v2's
/// memory.events or v1's memory.oom_control; none when neither can be read. Compare a value from
/// before the job with one from after it.
std::optional<long> oom_kills(const std::filesystem::path& proc = "/proc",
                              const std::filesystem::path& cgroups = "/sys/fs/cgroup");

/// Below this a folder counts as full. [bytes]
inline constexpr std::uintmax_t kFullBelow = std::uintmax_t{64} * 1024 * 1024;

struct FreeSpace {
  std::filesystem::path folder;
  std::uintmax_t bytes = 0;  ///< that we may still write
};

/// Free space of each folder that can be asked; folders on one file system count once.
std::vector<FreeSpace> free_space(std::span<const std::filesystem::path> folders);

/// "/opt/ml 1.5 GB, /tmp 20 MB"; only those below `limit`. Empty: none is. Pure.
std::string free_space_text(std::span<const FreeSpace> spaces, std::uintmax_t limit);

}  // namespace entrypoint
