// SPDX-License-Identifier: Apache-2.0
#include "smp_runtime/checkpoint/file_blocks.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>

#include "smp_runtime/checkpoint/atomic_file.h"
#include "smp_runtime/core/file.h"
#include "tests/unit/checkpoint/full_disk.h"
#include "tests/unit/checkpoint/scratch_folder.h"

namespace smp::checkpoint {
namespace {

constexpr std::size_t kBlock = std::size_t{8} << 20;

std::string content(std::size_t bytes) {
  std::string text(bytes, '\0');
  unsigned state = 1;
  std::ranges::generate(text, [&] { return static_cast<char>((state = state * 69069 + 1) >> 24); });
  return text;
}

FileDescriptor open_new(const std::filesystem::path& path) {
  return FileDescriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
}

/// Returns the first failure.
int write_in_pieces(BlockWriter& writer, std::string_view text, std::size_t piece) {
  for (; !text.empty(); text.remove_prefix(std::min(piece, text.size()))) {
    std::string passing(text.substr(0, piece));  // which may change at once
    if (const int code = writer.write(std::as_bytes(std::span(passing)))) return code;
    std::ranges::fill(passing, 'x');
  }
  return writer.finish();
}

void expect_written(const std::filesystem::path& folder) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{5}, kBlock - 1, kBlock, kBlock + 1,
                                  3 * kBlock, 4 * kBlock + 4097}) {
    for (const std::size_t piece : {std::size_t{1'000'003}, 5 * kBlock}) {
      const std::filesystem::path path = folder / std::to_string(bytes);
      const FileDescriptor file = open_new(path);
      ASSERT_TRUE(file.is_open());
      const std::string text = content(bytes);
      {
        BlockWriter writer(file.get());
        EXPECT_EQ(write_in_pieces(writer, text, piece), 0);
      }
      EXPECT_TRUE(read_file(path) == text) << bytes << " bytes by " << piece;
      std::filesystem::remove(path);
    }
  }
}

TEST(BlockWriter, WritesFilesOfAnyLength) { expect_written(ScratchFolder().path()); }

TEST(BlockWriter, WritesWhereTheSystemsCacheIsAllThereIs) {
  const std::filesystem::path folder("/dev/shm");
  if (::access(folder.c_str(), W_OK) != 0) GTEST_SKIP() << "no /dev/shm to write to";
  const std::filesystem::path own = folder / ("block_writer_" + std::to_string(::getpid()));
  std::filesystem::create_directory(own);
  expect_written(own);
  std::filesystem::remove(own);
}

TEST(BlockWriter, FailsForEverWhereTheDiskIsFull) {
  const ScratchFolder folder;
  for (const std::size_t room : {kBlock / 2, kBlock, kBlock + 100, 2 * kBlock + 4096}) {
    const FileDescriptor file = open_new(folder.path() / std::to_string(room));
    BlockWriter writer(file.get());
    {
      const FullDisk full(room);
      EXPECT_EQ(write_in_pieces(writer, content(5 * kBlock), 1'000'003), EFBIG) << room;
    }

    EXPECT_EQ(write_in_pieces(writer, "more", 4), EFBIG) << room;
    EXPECT_EQ(writer.finish(), EFBIG) << room;
    EXPECT_EQ(std::filesystem::file_size(folder.path() / std::to_string(room)), room);
  }
}

TEST(BlockWriter, FailsForEverWhereTheLastBlockHasNoRoom) {
  const ScratchFolder folder;
  const FileDescriptor file = open_new(folder.path() / "file");
  const std::string text = content(kBlock + 5000);
  BlockWriter writer(file.get());
  EXPECT_EQ(writer.write(std::as_bytes(std::span(text))), 0);
  {
    const FullDisk full(kBlock + 100);
    EXPECT_EQ(writer.finish(), EFBIG);
  }
  EXPECT_EQ(writer.finish(), EFBIG);
}

TEST(BlockWriter, MayBeLeftInTheMiddle) {
  const ScratchFolder folder;
  const FileDescriptor file = open_new(folder.path() / "left");
  const std::string text = content(2 * kBlock + 7);
  EXPECT_EQ(BlockWriter(file.get()).write(std::as_bytes(std::span(text))), 0);
}

TEST(ReadBlocks, GivesFilesOfAnyLengthInOrder) {
  const ScratchFolder folder;
  constexpr std::size_t kRead = kBlock / 2;
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{7}, kBlock - 1, kBlock, kBlock + 1,
                                  2 * kBlock, 5 * kBlock + 3}) {
    std::string text(bytes, 'a');
    for (std::size_t at = 0; at < bytes; at += 1000) text[at] = static_cast<char>(at / kRead);
    folder.put("file", text);
    const FileDescriptor file(::open((folder.path() / "file").c_str(), O_RDONLY | O_CLOEXEC));

    std::string got;
    const int code = read_blocks(file.get(), [&](std::span<const std::byte> part) {
      got.append(reinterpret_cast<const char*>(part.data()), part.size());
    });

    EXPECT_EQ(code, 0);
    EXPECT_TRUE(got == text) << bytes;
  }
}

TEST(ReadBlocks, TellsWhatCannotBeRead) {
  const FileDescriptor folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(read_blocks(folder.get(), [](std::span<const std::byte>) {}), EISDIR);
}

}  // namespace
}  // namespace smp::checkpoint
