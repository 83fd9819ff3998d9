// SPDX-License-Identifier: Apache-2.0
// A private folder of one run: of keys, ssh configurations and the environment of this host's
// ranks, or of what ranks keep in memory.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <string_view>

#include <sys/types.h>

#include "smp_runtime/core/file.h"

namespace entrypoint {

/// Mode 0700, made new, gone with the object. Only we and root can read what is in it.
class LaunchFolder {
 public:
  /// In the first of `places` that takes a folder. Throws HostError when none does.
  explicit LaunchFolder(std::initializer_list<const char*> places = {"/tmp", "/dev/shm"});
  ~LaunchFolder();
  /// Removes those of this user in `place` whose `train` was killed: they are a minute old, and
  /// nobody holds them.
  static void remove_abandoned(const std::filesystem::path& place);
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path file(std::string_view name) const { return path_ / name; }

  /// Whole or not at all, mode 0600. Returns the file's path. Throws HostError.
  std::filesystem::path write(std::string_view name, std::string_view content) const;

 private:
  std::filesystem::path path_;
  smp::FileDescriptor held_;  // locked as long as this process lives
  pid_t owner_;               // a forked child must not remove it
};

}  // namespace entrypoint
