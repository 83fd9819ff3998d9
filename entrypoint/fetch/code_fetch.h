// SPDX-License-Identifier: Apache-2.0
// Brings the user's code into the code folder.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "entrypoint/fetch/transfer_module.h"
#include "entrypoint/plan/transfers.h"
#include "entrypoint/process/process_runner.h"

namespace entrypoint::fetch {

/// Fetches `source` into its folder in a child process, which alone loads libcurl and libarchive.
/// Returns false when a stop came first. Throws ConfigError when the location holds no code or may
/// not be read, HostError when it cannot be reached. Blocks for at most an hour.
bool fetch_code(const CodeSource& source, const TransferSettings& settings, ProcessRunner& runner);

/// Copies files, their permissions and times; links are followed, so that the copy stands alone.
/// Links that lead nowhere or in circles, and devices, are left out with a warning each. Throws
/// HostError when something cannot be read or written.
std::vector<std::string> copy_folder(const std::filesystem::path& from,
                                     const std::filesystem::path& to);

/// Removes what a folder holds, not the folder: it may be a mount.
void empty_folder(const std::filesystem::path& folder);

}  // namespace entrypoint::fetch
