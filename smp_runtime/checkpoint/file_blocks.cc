// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/file_blocks.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace smp::checkpoint {
namespace {

constexpr std::size_t kWrittenBytes = std::size_t{8} << 20;
constexpr std::size_t kReadBytes = std::size_t{4} << 20;
/// Of memory, offsets and sizes: more than disks ask for, and else the cache takes them.
constexpr std::size_t kAlignment = 4096;

/// True on a disk of this machine. Over a network one block at a time would wait for the way there
/// and back, and memory has no cache to go past.
bool is_on_a_disk(int file) {
  struct statfs info {};
  if (::fstatfs(file, &info) != 0) return false;
  const auto type = static_cast<unsigned long>(info.f_type);
  return type == EXT4_SUPER_MAGIC || type == XFS_SUPER_MAGIC || type == OVERLAYFS_SUPER_MAGIC;
}

struct ReadBlock {
  std::vector<std::byte> bytes;
  int code = 0;  ///< errno
};

/// Shorter at the file's end alone.
ReadBlock read_block(int file, off_t offset, std::vector<std::byte> memory) {
  memory.resize(kReadBytes);
  std::size_t filled = 0;
  while (filled < memory.size()) {
    const ssize_t got = ::pread(file, memory.data() + filled, memory.size() - filled,
                                offset + static_cast<off_t>(filled));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return {.code = errno};
    if (got == 0) break;
    filled += static_cast<std::size_t>(got);
  }
  memory.resize(filled);
  return {.bytes = std::move(memory)};
}

}  // namespace

BlockWriter::Block BlockWriter::make_block() {
  Block block(static_cast<std::byte*>(std::aligned_alloc(kAlignment, kWrittenBytes)));
  if (!block) throw std::bad_alloc();
  return block;
}

int BlockWriter::write(std::span<const std::byte> bytes) {
  if (failure_ != 0) return failure_;
  if (!filling_) filling_ = make_block();
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min(bytes.size(), kWrittenBytes - filled_));
    bytes = bytes.subspan(part.size());
    std::memcpy(filling_.get() + filled_, part.data(), part.size());
    filled_ += part.size();
    if (filled_ < kWrittenBytes) continue;
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
  writing_ = std::async(kBeside, [this] { return put(std::span(leaving_.get(), kWrittenBytes)); });
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
  if (!is_direct_ && end_ > begin) {
    ::sync_file_range(file_, begin, end_ - begin, SYNC_FILE_RANGE_WRITE);
  }
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
  if (is_direct_ && !go_direct(false)) return failure_ = errno;
  return failure_ = put(std::span(filling_.get(), std::exchange(filled_, 0)));
}

int read_blocks(int file, const std::function<void(std::span<const std::byte>)>& take) {
  ReadBlock block = read_block(file, 0, {});
  std::vector<std::future<ReadBlock>> coming(is_on_a_disk(file) ? 2 : 1);
  off_t asked = kReadBytes;
  const auto ask = [&](std::future<ReadBlock>& one, std::vector<std::byte> memory) {
    one = std::async(kBeside, read_block, file, asked, std::move(memory));
    asked += kReadBytes;
  };
  for (std::size_t number = 0;; ++number) {
    if (block.code != 0) return block.code;
    const bool is_last = block.bytes.size() < kReadBytes;
    if (number == 0 && !is_last) {
      for (auto& one : coming) ask(one, {});
    }
    take(block.bytes);
    if (is_last) return 0;
    std::future<ReadBlock>& next = coming[number % coming.size()];
    std::vector<std::byte> memory = std::move(block.bytes);
    block = next.get();
    ask(next, std::move(memory));
  }
}

}  // namespace smp::checkpoint
