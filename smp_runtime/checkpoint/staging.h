// SPDX-License-Identifier: Apache-2.0
// How a checkpoint of several files becomes visible at one moment, and what a killed save leaves.
//
// Files are written into a staging folder `.NAME.TOKEN.staging` beside their destination. Then
// either the folder itself becomes the checkpoint, by one rename, or, where the layout wants single
// files, it is renamed to `.NAME.commit`, which is the moment from which they count, and they are
// moved out one by one. Readers look through what was not finished (locate), so that a process may
// be killed at any point; the next save tidies up.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace smp::checkpoint {

/// End of the name of a checkpoint in parts.
inline constexpr const char* kPartial = "_partial";
/// The file that names the newest checkpoint of its folder.
inline constexpr const char* kNewest = "newest";

/// All functions throw HostError with path and reason.

/// Makes `root` where it is missing, and in it the staging folder of `name`. False if the staging
/// folder was there: another process made it, on a file system that both see. True: this call made
/// it, and if it `tidies` has removed what killed saves left in `root` and finished what they had
/// committed: so nobody may be saving there.
bool open_staging(const std::filesystem::path& root, const std::string& name,
                  const std::string& token, bool tidies = true);

[[nodiscard]] std::filesystem::path staging_path(const std::filesystem::path& root,
                                                 const std::string& name, const std::string& token);

/// The staging folder becomes `root/name`, in the place of a folder of that name, which goes. Where
/// the file system cannot exchange two folders, the old one is set aside for a moment; locate finds
/// it there.
void publish_folder(const std::filesystem::path& root, const std::string& name,
                    const std::string& token);

/// The files of the staging folder of `name` become files of `root`, all or none.
void publish_files(const std::filesystem::path& root, const std::string& name,
                   const std::string& token);

/// The place from which the file or folder `entry` of the checkpoint `name` is to be read, whether
/// or not a save was killed while it published. The path may not exist.
[[nodiscard]] std::filesystem::path locate(const std::filesystem::path& root,
                                           const std::string& name, const std::string& entry);

/// Entries of `folder`, by path, sorted.
[[nodiscard]] std::vector<std::filesystem::path> entries_of(const std::filesystem::path& folder);

/// Drops a staging folder after a failure. Never throws.
void discard_staging(const std::filesystem::path& root, const std::string& name,
                     const std::string& token) noexcept;

/// Removes all checkpoints in parts of `root`, folders with a manifest, but `keep` and the newest
/// others, so that `count` remain. Returns the names of those removed.
std::vector<std::string> prune_folders(const std::filesystem::path& root, const std::string& keep,
                                       int count);

}  // namespace smp::checkpoint
