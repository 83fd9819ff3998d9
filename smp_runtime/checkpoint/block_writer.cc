// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/block_writer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace smp::checkpoint {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{8} << 20;
/// Of memory, offsets and sizes: no disk asks for more.
constexpr std::size_t kAlignment = 4096;

/// True on a disk of this machine. Over a network one block at a time would wait for the way there
/// and back, and memory has no cache to go past.
bool is_on_a_disk(int file) {
  struct statfs info {};
  if (::fstatfs(file, &info) != 0) return false;
  const auto type = static_cast<unsigned long>(info.f_type);
  return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == OVERLAYFS_SUPER_MAGIC;
}

}  // namespace

BlockWriter::~BlockWriter() {
  if (writing_.valid()) writing_.wait();
}

BlockWriter::Block BlockWriter::make_block() {
  Block block(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kBlockBytes)));
  if (!block) throw std::bad_alloc();
  return block;
}

int BlockWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kBlockBytes - filled_));
    bytes = bytes.subspan(part.size());
    std::memcpy(filling_.get() + filled_, part.data(), part.size());
    filled_ += part.size();
    if (filled_ < kBlockBytes) continue;
    if (const int code = begin_block()) return code;
  }
  return 0;
}

int BlockWriter::begin_block() {
  if (leaving_) {
    if (const int code = await_block()) return code;
  } else {
    leaving_ = make_block();
    if (is_on_a_disk(file_)) go_direct(true);
  }
  std::swap(filling_, leaving_);
  filled_ = 0;
  writing_ = std::async(std::launch::async,
                        [this] { return put(std::span(leaving_.get(), kBlockBytes)); });
  return 0;
}

int BlockWriter::await_block() {
  if (writing_.valid() && failure_ == 0) failure_ = writing_.get();
  return failure_;
}

int BlockWriter::put(std::span<const std::byte> bytes) {
  const off_t begin = end_;
  while (!bytes.empty()) {
    const ssize_t size = ::write(file_, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && !(is_direct_ && errno == EINVAL)) return errno;
    const std::size_t written = size < 0 ? 0 : static_cast<std::size_t>(size);
    bytes = bytes.subspan(written);
    end_ += static_cast<off_t>(written);
    // A disk with larger blocks, or a full one: the cache takes any size, or says what is wrong.
    if (is_direct_ && !bytes.empty() && !go_direct(false)) return errno;
  }
  // The disk works beside the processor, not all of it in the end. What fails is said by fsync.
  if (!is_direct_) ::sync_file_range(file_, begin, end_ - begin, SYNC_FILE_RANGE_WRITE);
  return 0;
}

/// False where the file system cannot; errno says why.
bool BlockWriter::go_direct(bool is_direct) {
  const int flags = ::fcntl(file_, F_GETFL);
  if (flags < 0) return false;
  if (::fcntl(file_, F_SETFL, is_direct ? flags | O_DIRECT : flags & ~O_DIRECT) < 0) return false;
  is_direct_ = is_direct;
  return true;
}

int BlockWriter::finish() {
  if (const int code = await_block()) return code;
  if (is_direct_ && !go_direct(false)) return errno;
  return put(std::span(filling_.get(), std::exchange(filled_, 0)));
}

}  // namespace smp::checkpoint
