// SPDX-License-Identifier: Apache-2.0
// A folder of one test's own, with its files as a map.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "tests/unit/opt_ml_layout/temporary_folder.h"

namespace smp::checkpoint {

class ScratchFolder : public testing_support::TemporaryFolder {
 public:
  void put(const std::string& name, const std::string& text) const {
    testing_support::write_file(path() / name, text);
  }

  /// Every file below, by its path, with its text.
  [[nodiscard]] std::map<std::string, std::string> files() const {
    std::map<std::string, std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path())) {
      if (entry.is_regular_file()) {
        found[std::filesystem::relative(entry.path(), path()).string()] =
            testing_support::read_file(entry.path());
      }
    }
    return found;
  }
};

}  // namespace smp::checkpoint
