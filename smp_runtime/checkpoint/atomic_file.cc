// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "smp_runtime/checkpoint/crc32c.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCachedBytes = std::size_t{256} << 10;  ///< are in the processor's cache

[[noreturn]] void fail(const char* what, const fs::path& path, int code) {
  throw HostError("cannot {} {}: {}", what, path.string(),
                  std::error_code(code, std::generic_category()).message());
}

FileDescriptor open_to_read(const fs::path& path, int flags = 0) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file.is_open()) fail("open", path, errno);
  return file;
}

void read_whole(const fs::path& path, const std::function<void(std::span<const std::byte>)>& take) {
  const FileDescriptor file = open_to_read(path);
  if (const int code = read_blocks(file.get(), take)) fail("read", path, code);
}

}  // namespace

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)), draft_(open_draft(path_, "writing")), writer_(draft_.file.get()) {
  if (!draft_.file.is_open()) fail("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (draft_.file.is_open()) ::unlink(draft_.path.c_str());
}

void AtomicFile::write(std::span<const std::byte> data) {
  SMP_CHECK(draft_.file.is_open(), "{} was written to after its end", path_.string());
  while (!data.empty()) {
    const auto part = data.first(std::min(data.size(), kCachedBytes));
    data = data.subspan(part.size());
    crc_ = crc32c(crc_, part);
    bytes_ += static_cast<std::int64_t>(part.size());
    if (const int code = writer_.write(part)) fail("write", path_, code);
  }
}

FileDigest AtomicFile::commit() {
  SMP_CHECK(draft_.file.is_open(), "{} was committed twice", path_.string());
  if (const int code = writer_.finish()) fail("write", path_, code);
  // Some file systems report a full disk only here, or when the descriptor is closed.
  if (::fsync(draft_.file.get()) != 0) fail("write", path_, errno);
  if (::close(draft_.file.release()) != 0 || ::rename(draft_.path.c_str(), path_.c_str()) != 0) {
    const int code = errno;
    ::unlink(draft_.path.c_str());
    fail("write", path_, code);
  }
  sync_folder(path_.parent_path());
  return {.name = path_.filename().string(), .bytes = bytes_, .crc32c = crc_};
}

FileDigest write_file(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  return file.commit();
}

std::string read_file(const fs::path& path) {
  std::string text;
  read_whole(path, [&](std::span<const std::byte> part) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return text;
}

FileDigest digest_of(const fs::path& path) {
  FileDigest digest{.name = path.filename().string()};
  read_whole(path, [&](std::span<const std::byte> part) {
    digest.crc32c = crc32c(digest.crc32c, part);
    digest.bytes += static_cast<std::int64_t>(part.size());
  });
  return digest;
}

void sync_folder(const fs::path& folder) {
  const fs::path named = folder.empty() ? fs::path(".") : folder;
  const FileDescriptor opened = open_to_read(named, O_DIRECTORY);
  // File systems that cannot (some network ones) say EINVAL; their renames are durable by contract.
  if (::fsync(opened.get()) != 0 && errno != EINVAL) fail("synchronise", named, errno);
}

}  // namespace smp::checkpoint
