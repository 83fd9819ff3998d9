// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/atomic_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "smp_runtime/checkpoint/crc32c.h"
#include "smp_runtime/core/error.h"

namespace smp::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr std::size_t kWriteBytes = std::size_t{1} << 20;
constexpr std::int64_t kWritebackBytes = std::int64_t{8} << 20;

[[noreturn]] void fail(const char* what, const fs::path& path, int code) {
  throw HostError("cannot {} {}: {}", what, path.string(),
                  std::error_code(code, std::generic_category()).message());
}

FileDescriptor open_to_read(const fs::path& path, int flags = 0) {
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags));
  if (!file.is_open()) fail("open", path, errno);
  return file;
}

/// Calls `take` with every part of the file.
template <typename Take>
void read_parts(const fs::path& path, const Take& take) {
  const FileDescriptor file = open_to_read(path);
  std::vector<std::byte> part(kReadBytes);
  while (true) {
    const ssize_t got = ::read(file.get(), part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read", path, errno);
    if (got == 0) return;
    take(std::span<const std::byte>(part).first(static_cast<std::size_t>(got)));
  }
}

}  // namespace

AtomicFile::AtomicFile(fs::path path)
    : path_(std::move(path)), draft_(open_draft(path_, "writing")) {
  if (!draft_.file.is_open()) fail("write", path_, errno);
}

AtomicFile::~AtomicFile() {
  if (draft_.file.is_open()) ::unlink(draft_.path.c_str());
}

void AtomicFile::write(std::span<const std::byte> data) {
  SMP_CHECK(draft_.file.is_open(), "{} was written to after its end", path_.string());
  while (!data.empty()) {
    const auto part = data.first(std::min(data.size(), kWriteBytes));
    data = data.subspan(part.size());
    crc_ = crc32c(crc_, part);  // and then it is in the processor's cache
    bytes_ += static_cast<std::int64_t>(part.size());
    const std::string_view bytes(reinterpret_cast<const char*>(part.data()), part.size());
    if (const int code = write_all(draft_.file.get(), bytes)) fail("write", path_, code);
    if (bytes_ - begun_ < kWritebackBytes) continue;
    // The disk works beside the processor, not all of it in the end. What fails is said by fsync.
    ::sync_file_range(draft_.file.get(), begun_, bytes_ - begun_, SYNC_FILE_RANGE_WRITE);
    begun_ = bytes_;
  }
}

FileDigest AtomicFile::commit() {
  SMP_CHECK(draft_.file.is_open(), "{} was committed twice", path_.string());
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
  read_parts(path, [&](std::span<const std::byte> part) {
    text.append(reinterpret_cast<const char*>(part.data()), part.size());
  });
  return text;
}

FileDigest digest_of(const fs::path& path) {
  FileDigest digest{.name = path.filename().string()};
  read_parts(path, [&](std::span<const std::byte> part) {
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
