// SPDX-License-Identifier: Apache-2.0
// Copies a folder of code.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint::fetch {

/// Copies files, their permissions and times; links are followed, so that the copy stands alone.
/// Links that lead nowhere or in circles, and devices, are left out with a warning each. Throws
/// HostError when something cannot be read or written.
std::vector<std::string> copy_folder(const std::filesystem::path& from,
                                     const std::filesystem::path& to);

/// Copies one file into a folder, under its own name.
void copy_into(const std::filesystem::path& file, const std::filesystem::path& folder);

/// Removes what a folder holds, not the folder: it may be a mount.
void empty_folder(const std::filesystem::path& folder);

}  // namespace entrypoint::fetch
