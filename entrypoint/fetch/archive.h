// SPDX-License-Identifier: Apache-2.0
// Unpacks tar archives with libarchive's readers and our own, careful writer.
#pragma once

#include <cstdint>
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

/// What an archive may come to.
struct ArchiveLimits {
  std::int64_t bytes = 0;            ///< SM_LAUNCH_CODE_MAX_BYTES; 0: nine tenths of what is free
  std::int64_t members = 1'000'000;  ///< SM_LAUNCH_CODE_MAX_FILES
};

/// Bytes that may be written to the file system of `folder`.
std::int64_t most_bytes(const ArchiveLimits& limits, const std::filesystem::path& folder);

/// Unpacks a tar archive, compressed or not (gzip, bzip2, xz, zstd), into a folder, over what is
/// there. Names are made harmless; devices, FIFOs and links that leave the folder are left out;
/// owners and special bits do not count. A hostile archive gives warnings. It is read twice: one
/// that is broken, cut or beyond the limits throws ConfigError before anything is written.
/// HostError is for this host's disk.
Unpacked unpack(const std::filesystem::path& archive, const std::filesystem::path& folder,
                const ArchiveLimits& limits);

}  // namespace entrypoint::fetch
