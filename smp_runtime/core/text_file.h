// SPDX-License-Identifier: Apache-2.0
// Files that are read or written whole. Each call opens, uses and closes one. Nothing is
// synchronised with the disk, for steps would wait for that (checkpoint/atomic_file.h does).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace smp {

inline constexpr mode_t kForEverybody = 0666;  ///< but for what the umask forbids
inline constexpr mode_t kForOwner = 0600;

/// All that can be read of the file, which may be one of /proc; empty where nothing can.
std::string read_text(const std::filesystem::path& path);

/// Puts `text` behind what the file holds; makes the file, not its folder. Throws HostError with
/// the path and the system's reason.
void append_text(const std::filesystem::path& path, std::string_view text);

/// Makes the file hold `text` alone, with `mode`. Its readers see what it held before or the whole
/// text, also where hosts that share the folder write it at one time. Throws HostError as above;
/// the file is as it was then.
void replace_text(const std::filesystem::path& path, std::string_view text,
                  mode_t mode = kForEverybody);

}  // namespace smp
