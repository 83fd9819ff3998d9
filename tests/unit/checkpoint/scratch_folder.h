// SPDX-License-Identifier: Apache-2.0
// A folder of one test's own, with its files as a map.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "smp_runtime/checkpoint/atomic_file.h"

namespace smp::checkpoint {

class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "checkpoint.XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void put(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    write_file(path_ / name, text);
  }

  /// Every file below, by its path, with its text.
  [[nodiscard]] std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
      if (entry.is_regular_file()) {
        found[std::filesystem::relative(entry.path(), path_).string()] = read_file(entry.path());
      }
    }
    return found;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace smp::checkpoint
