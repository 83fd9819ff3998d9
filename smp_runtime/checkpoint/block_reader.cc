// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/block_reader.h"

#include <array>
#include <cerrno>
#include <future>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

namespace smp::checkpoint {
namespace {

constexpr std::size_t kReadBytes = std::size_t{4} << 20;
constexpr std::size_t kThreads = 2;

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

int read_blocks(int file, const std::function<void(std::span<const std::byte>)>& take) {
  ReadBlock block = read_block(file, 0, {});
  std::array<std::future<ReadBlock>, kThreads> coming;
  off_t asked = kReadBytes;
  const auto ask = [&](std::future<ReadBlock>& one, std::vector<std::byte> memory) {
    one = std::async(std::launch::async, read_block, file, asked, std::move(memory));
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
    std::future<ReadBlock>& next = coming[number % kThreads];
    std::vector<std::byte> memory = std::move(block.bytes);
    block = next.get();
    ask(next, std::move(memory));
  }
}

}  // namespace smp::checkpoint
