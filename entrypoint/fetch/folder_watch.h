// SPDX-License-Identifier: Apache-2.0
// Notices finished files in a tree.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <vector>

#include <sys/types.h>

#include "smp_runtime/core/file.h"

namespace entrypoint::fetch {

/// inotify on a folder and all below it: files closed after writing, files and folders moved in,
/// new folders with what is already in them. One thread at a time.
class FolderWatch {
 public:
  /// The folder must exist; what lies in it counts as finished. Throws HostError, also when the
  /// system's limit on watches is reached.
  explicit FolderWatch(std::filesystem::path folder);

  /// Readable when there is something to collect.
  [[nodiscard]] int fd() const { return events_.get(); }

  /// Files that were finished since the last call, in order, each once. Never blocks. After an
  /// overflow of the kernel's queue these are all files.
  std::vector<std::filesystem::path> collect();

 private:
  void watch_tree(const std::filesystem::path& folder);
  void take(const std::filesystem::path& file);

  std::filesystem::path folder_;
  smp::FileDescriptor events_;
  std::map<int, std::filesystem::path> folders_;  // by watch
  std::vector<std::filesystem::path> finished_;
};

/// The regular files below a folder, links to files included, sorted. Pure but for reading.
std::vector<std::filesystem::path> files_below(const std::filesystem::path& folder);

}  // namespace entrypoint::fetch
