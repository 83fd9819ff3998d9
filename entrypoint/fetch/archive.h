// SPDX-License-Identifier: Apache-2.0
// Unpacks tar archives with libarchive's readers and our own, careful writer.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace entrypoint::fetch {

struct Unpacked {
  bool is_archive = false;  ///< false: it is none, and nothing was written
  std::string refusal;      ///< why it is none, in the library's words
  int members = 0;          ///< how many were read, left out or not
  std::vector<std::string> warnings;
};

/// Unpacks a tar archive, compressed or not (gzip, bzip2, xz, zstd), into a folder, over what is
/// there. Names are made harmless; devices, FIFOs and links that leave the folder are left out;
/// owners and special bits do not count. A hostile archive gives warnings; a broken or cut one
/// throws ConfigError after writing what came before; HostError is for this host's disk.
Unpacked unpack(const std::filesystem::path& archive, const std::filesystem::path& folder);

}  // namespace entrypoint::fetch
