// SPDX-License-Identifier: Apache-2.0
// What belongs to a checkpoint: its files with their checksums, and the job that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "smp_runtime/checkpoint/atomic_file.h"

namespace smp::checkpoint {

/// The degrees of the job that wrote a checkpoint.
struct Degrees {
  int pipeline = 1;
  int tensor = 1;
  int reduced_data = 1;

  bool operator==(const Degrees&) const = default;
};

struct Manifest {
  std::string tag;
  std::string library;  ///< version that wrote it
  Degrees degrees;
  std::vector<FileDigest> files;

  bool operator==(const Manifest&) const = default;

  /// {"format": 1, "tag": …, "library": …, "degrees": {"pp", "tp", "rdp"},
  ///  "files": {NAME: {"bytes": …, "crc32c": "8 hexadecimal digits"}}}
  [[nodiscard]] std::string to_json() const;

  /// Throws ConfigError that starts with `where` for broken or foreign text.
  static Manifest from_json(std::string_view text, const std::string& where);

  /// The entry of `name`, or null.
  [[nodiscard]] const FileDigest* find(std::string_view name) const;
};

/// Reads `path` and compares it with what was written. Throws ConfigError that names the file and
/// says what differs, HostError if it cannot be read.
void verify_file(const std::filesystem::path& path, const FileDigest& expected);

}  // namespace smp::checkpoint
