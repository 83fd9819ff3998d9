// SPDX-License-Identifier: Apache-2.0
// The private folder of one run: keys, ssh configurations, the environment of this host's ranks.
#pragma once

#include <filesystem>
#include <string_view>

#include <sys/types.h>

namespace entrypoint {

/// Mode 0700, made new under /tmp (else /dev/shm), gone with the object. Only we and root can read
/// what is in it.
class LaunchFolder {
 public:
  /// Throws HostError when neither place takes a folder.
  LaunchFolder();
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  [[nodiscard]] std::filesystem::path file(std::string_view name) const { return path_ / name; }

  /// Whole or not at all, mode 0600. Returns the file's path. Throws HostError.
  std::filesystem::path write(std::string_view name, std::string_view content) const;

 private:
  std::filesystem::path path_;
  pid_t owner_;  // a forked child must not remove it
};

}  // namespace entrypoint
