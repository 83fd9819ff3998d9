// SPDX-License-Identifier: Apache-2.0
// A file that is there whole or not at all: written under a temporary name, synchronised, renamed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "smp_runtime/checkpoint/file_blocks.h"
#include "smp_runtime/core/file.h"

namespace smp::checkpoint {

/// Size and checksum of a file as written.
struct FileDigest {
  std::string name;  ///< within its folder
  std::int64_t bytes = 0;
  std::uint32_t crc32c = 0;

  bool operator==(const FileDigest&) const = default;
};

/// Not thread-safe. Members throw HostError with the path and the system's reason.
class AtomicFile {
 public:
  /// Opens a draft, `.NAME.RANDOM.writing`, in the folder of `path`, which must exist.
  explicit AtomicFile(std::filesystem::path path);
  /// Removes what was not committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> data);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }

  /// Makes the bytes durable, then visible as `path`, replacing a file of that name. Call once.
  FileDigest commit();

 private:
  const std::filesystem::path path_;
  Draft draft_;
  BlockWriter writer_;
  std::int64_t bytes_ = 0;
  std::uint32_t crc_ = 0;
};

/// Replaces or makes the file `path`, which then holds `text`.
FileDigest write_file(const std::filesystem::path& path, std::string_view text);

/// The whole file as text.
std::string read_file(const std::filesystem::path& path);

/// Reads the file once. Throws HostError if it cannot be read.
FileDigest digest_of(const std::filesystem::path& path);

/// Makes the entries of `folder` durable: names live in it, not in the files.
void sync_folder(const std::filesystem::path& folder);

}  // namespace smp::checkpoint
